-- An in-memory database with two indexes, and queries whose answers print.
PRAGMA cache_size = -4000000;
PRAGMA temp_store = MEMORY;
CREATE TABLE reading (id INTEGER PRIMARY KEY, sensor INTEGER, value INTEGER, note TEXT);
WITH RECURSIVE step(i, x) AS (
  SELECT 1, 12345 UNION ALL
  SELECT i + 1, (x * 1103515245 + 12345) % 2147483648 FROM step WHERE i < 420000
)
INSERT INTO reading SELECT i, x % 5003, x / 7 % 1000003, 'note ' || x || ' of ' || i || substr('....................', 1, x % 20) FROM step;
CREATE INDEX reading_by_sensor ON reading (sensor, value);
CREATE INDEX reading_by_note ON reading (note);
SELECT count(*), sum(value), min(note), max(note) FROM reading;
SELECT sensor, count(*), max(value) FROM reading WHERE sensor BETWEEN 100 AND 140 GROUP BY sensor ORDER BY sensor;
UPDATE reading SET value = value + 1, note = note || '!' WHERE sensor % 5 = 0;
SELECT a.id, b.id FROM reading a JOIN reading b ON b.sensor = a.sensor AND b.value = a.value WHERE a.id < b.id ORDER BY a.id, b.id LIMIT 50;
DELETE FROM reading WHERE sensor % 7 = 3;
SELECT id, note FROM reading ORDER BY note DESC LIMIT 20 OFFSET 200000;
SELECT sum(length(note)), sum(value * (id % 13)) FROM reading;
PRAGMA integrity_check;
