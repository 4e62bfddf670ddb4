# mapped.py FILE FILE_MIB TABLE_MIB: goes over a mapped file of which more is here than memory may be, and writes into a table that has room beside it.
import hashlib
import mmap
import sys
import zlib

path, file_mib, table_mib = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
MIB = 1 << 20
with open(path, "wb") as out:
    for block in range(file_mib):
        out.write(hashlib.sha256(b"%d" % block).digest() * (MIB // 32))
table = bytearray(table_mib * MIB)
pages = len(table) // 4096
with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
    view = memoryview(mapped)
    for _ in range(4):
        for at in range(0, len(view), MIB):
            crc = zlib.crc32(view[at : at + MIB])
            for step in range(64):
                page = (crc + step * 2_654_435_761) % pages * 4096
                table[page : page + 8] = (int.from_bytes(table[page : page + 8], "little") + crc).to_bytes(8, "little")
    view.release()
print(hashlib.sha256(table).hexdigest())
