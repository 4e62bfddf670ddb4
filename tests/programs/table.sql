-- An in-memory database of rows with long notes, an index, and queries whose answers print. The notes are most of the memory; the
-- queries over them go in the order of the table.
PRAGMA cache_size = -4000000;
PRAGMA temp_store = MEMORY;
CREATE TABLE reading (id INTEGER PRIMARY KEY, sensor INTEGER, value INTEGER, note TEXT);
WITH RECURSIVE step(i, x) AS (
  SELECT 1, 12345 UNION ALL
  SELECT i + 1, (x * 1103515245 + 12345) % 2147483648 FROM step WHERE i < 26000
)
INSERT INTO reading SELECT i, x % 503, x / 7 % 1000003, printf('%.*c', 2000 + x % 900, char(97 + x / 11 % 26)) || x || ' of ' || i FROM step;
CREATE INDEX reading_by_sensor ON reading (sensor, value);
SELECT count(*), sum(value), min(value), max(value) FROM reading;
SELECT sensor, count(*), max(value) FROM reading WHERE sensor BETWEEN 100 AND 140 GROUP BY sensor ORDER BY sensor;
UPDATE reading SET value = value + 1, note = note || '!' WHERE id BETWEEN 10000 AND 13000;
SELECT a.id, b.id FROM reading a JOIN reading b ON b.sensor = a.sensor AND b.value = a.value WHERE a.id < b.id ORDER BY a.id, b.id LIMIT 50;
DELETE FROM reading WHERE id BETWEEN 20000 AND 22000;
SELECT id, sensor, substr(note, -20) FROM reading WHERE sensor = 77 ORDER BY value LIMIT 50;
SELECT id, length(note), substr(note, -20) FROM reading WHERE id % 97 = 0 ORDER BY id;
SELECT sum(length(note)), sum(value * (id % 13)), max(substr(note, -16)) FROM reading;
PRAGMA integrity_check;
