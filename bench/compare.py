#!/usr/bin/env python3
"""The same program under the same memory limit: Loam beside what a user would do instead.

    sudo bench/compare.py [--loam target/release/loam] [--parts 25,50] [--ways loam,disk,zram,file]
                          [--programs sort,python,...] [--python PYTHON] [--repeat N] [--dir DIR] [--out FILE.md]

Each program runs plain first (its peak and its output are measured; of "pool" and "three", which are several processes, what all have together), then under 25% and 50% of that peak
    loam   `loam run --embedded 2x...`: two lender processes on loopback, and the disk
           (loam:64K and so on: with pages of that size; without, sizes are found)
    disk   a memory cgroup and a swap file on the disk of --dir
    zram   a memory cgroup and a compressed swap device in this machine's memory
    file   a memory cgroup and a mapping of a file in --dir (the walking program only)
Every output is compared with the plain run's. One row of markdown a program and part, seconds of wall time, median of --repeat.

Needs root for disk, zram and file. Swap that is already in use by the machine would answer for ours, so it is refused. What is set
up (a cgroup, a swap file, a zram device) is taken down again, also after an error or Ctrl-C.

The machine's cache of files is emptied before each run: a cgroup counts what its programs bring into the cache, and not what was there before them, such as
the libraries of a plain run.

Two unfairnesses that the table cannot show: a cgroup counts a program's page cache, which favours Loam for programs that
read files; and zram keeps the compressed pages in local memory beyond the limit, which favours zram (its peak is told).
"""

import argparse
import contextlib
import hashlib
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parent.parent
# What a version 1 cgroup gets more for a moment when its reclaim is stuck.
HELP_BYTES = 8 << 20
# More than anything has.
BOUNDLESS_BYTES = 1 << 40
MIB = 1 << 20


class Unavailable(Exception):
    """A way that cannot be tried here, and why."""


def run(command, cwd, limit_s, before_exec=None):
    """Runs to the end. Returns wall seconds, peak resident bytes of the largest process, exit status, digest of stdout."""
    with tempfile.TemporaryFile(dir=cwd) as out, tempfile.TemporaryFile(dir=cwd) as err:
        env = dict(os.environ, LC_ALL="C", PYTHONHASHSEED="0")
        begin = time.monotonic()
        child = subprocess.Popen(
            command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            preexec_fn=before_exec, start_new_session=True,
        )
        timer_expired = False

        def expired(*_):
            nonlocal timer_expired
            timer_expired = True
            os.killpg(child.pid, signal.SIGKILL)

        old = signal.signal(signal.SIGALRM, expired)
        signal.alarm(limit_s)
        try:
            _, status, usage = os.wait4(child.pid, 0)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            raise
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, old)
        wall_s = time.monotonic() - begin
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        digest = hashlib.file_digest(out, "sha256").hexdigest()
        err.seek(0)
        words = err.read(4000).decode(errors="replace").strip()
        code = f"no end after {limit_s} s" if timer_expired else child.returncode
        return wall_s, usage.ru_maxrss * 1024, code, digest, words


class Cgroup:
    """A memory cgroup of our own, version 1 or 2."""

    def __init__(self, limit_bytes):
        name = f"loam-compare-{os.getpid()}"
        if Path("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists():
            self.path = Path("/sys/fs/cgroup/memory") / name
            self.limit, self.controllers = "memory.limit_in_bytes", None
        elif "memory" in read("/sys/fs/cgroup/cgroup.controllers").split():
            self.path = Path("/sys/fs/cgroup") / name
            self.limit, self.controllers = "memory.max", Path("/sys/fs/cgroup/cgroup.subtree_control")
        else:
            raise Unavailable("no memory cgroup controller")
        self.limit_bytes, self.helped, self.ended = limit_bytes, 0, threading.Event()
        self.helper = None

    def help(self):
        """Version 1 has no memory.high: where reclaim finds nothing at its first tries, the kernel kills, although there is
        swap left. With that killer off the program waits instead; a moment of HELP_BYTES more lets it and reclaim go on."""
        limit, state = self.path / self.limit, self.path / "memory.oom_control"
        while not self.ended.wait(0.001):
            if "under_oom 1" not in read(state):
                continue
            self.helped += 1
            with contextlib.suppress(OSError):
                limit.write_text(str(self.limit_bytes + HELP_BYTES))
            for _ in range(100):
                with contextlib.suppress(OSError):
                    limit.write_text(str(self.limit_bytes))
                    break

    def __enter__(self):
        try:
            if self.controllers and "memory" not in read(self.controllers).split():
                self.controllers.write_text("+memory")
            self.path.mkdir()
            (self.path / self.limit).write_text(str(self.limit_bytes))
            if not self.controllers:
                (self.path / "memory.oom_control").write_text("1")
                self.helper = threading.Thread(target=self.help, daemon=True)
                self.helper.start()
        except OSError as error:
            self.__exit__()
            raise Unavailable(f"memory cgroup: {error}") from error
        return self

    def peak_bytes(self):
        """The most that all in it had together."""
        return int(read(self.path / ("memory.peak" if self.controllers else "memory.max_usage_in_bytes")))

    def join(self):
        """In the child, before it becomes the program."""
        (self.path / "cgroup.procs").write_text("0")

    def __exit__(self, *_):
        self.ended.set()
        if self.helper:
            self.helper.join()
        # The kernel may need a moment to let go of the last process.
        for _ in range(50):
            try:
                self.path.rmdir()
                return
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.1)
        print(f"compare: {self.path} could not be removed: rmdir it", file=sys.stderr)


def read(path):
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def swap_in_use():
    return read("/proc/swaps").splitlines()[1:]


def empty_cache():
    """Files that are in the machine's cache count for nobody. (Who may not empty it can try nothing but the loam way.)"""
    with contextlib.suppress(PermissionError):
        Path("/proc/sys/vm/drop_caches").write_text("1\n", encoding="ascii")


@contextlib.contextmanager
def swap_on(device, priority="10"):
    if swap_in_use():
        raise Unavailable("the machine swaps already: swapoff -a first")
    for command in (["mkswap", device], ["swapon", "-p", priority, device]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unavailable(f"{command[0]}: {done.stderr.strip()}")
    try:
        yield
    finally:
        done = subprocess.run(["swapoff", device], capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"compare: swapoff {device} failed ({done.stderr.strip()}): do it by hand", file=sys.stderr)


@contextlib.contextmanager
def disk_swap(folder, size_bytes):
    path = Path(folder) / "swapfile"
    try:
        with open(path, "wb") as file:
            os.chmod(path, 0o600)
            os.posix_fallocate(file.fileno(), 0, size_bytes)
        with swap_on(str(path)):
            yield
    finally:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def zram_swap(size_bytes):
    device = Path("/sys/block/zram0")
    if not device.exists():
        subprocess.run(["modprobe", "zram"], capture_output=True, check=False)
    if not device.exists():
        raise Unavailable("no /dev/zram0")
    if read(device / "disksize").strip() != "0":
        raise Unavailable("/dev/zram0 is in use")
    try:
        (device / "disksize").write_text(str(size_bytes))
        with swap_on("/dev/zram0"):
            yield device
    finally:
        (device / "reset").write_text("1")


class Program:
    def __init__(self, name, command, prepare=None, is_tree=False):
        self.name, self.command, self.prepare, self.is_tree = name, command, prepare, is_tree


def write_lines(path, count):
    """Lines in no order, the same every time."""
    x = 1
    with open(path, "w", encoding="ascii") as file:
        for _ in range(count):
            x = (x * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
            file.write(f"{x:016x} {'abcdefghij'[x >> 20 & 7] * (20 + (x >> 33) % 40)}\n")


REDIS = """rm -f dump.rdb # a server loads the one that it finds
redis-server --port 0 --unixsocket redis.sock --save '' --enable-debug-command yes >/dev/null &
ask() { redis-cli -s redis.sock "$@"; }
until ask ping >/dev/null 2>&1; do sleep 0.05; done
ask --pipe <fill >/dev/null
ask bgsave >/dev/null
ask --pipe <read >/dev/null
while ask info persistence | grep -q bgsave_in_progress:1; do sleep 0.1; done
ask debug digest
ask shutdown nosave
wait"""
# Each prints its result; where it names its folder, or counts, that is left out.
VELVET = """velveth out 31 -short -fastq reads.fq >/dev/null
velvetg out >/dev/null
cat out/contigs.fa"""
BWA = """bwa index -p bwa genome.fa 2>/dev/null
cat bwa.bwt bwa.sa"""
BOWTIE2 = """bowtie2-build -q genome.fa bowtie2
cat bowtie2.*.bt2"""
SAMTOOLS = """minimap2 -x sr -a -t 1 genome.fa reads.fq 2>/dev/null | grep -v ^@PG >mapped.sam
samtools sort -m 512M -O sam --no-PG mapped.sam 2>/dev/null"""
# What is called otherwise than its row, or by a script of it.
ABYSS = "PATH=$PATH:/usr/lib/abyss; ABYSS -k31 -o /dev/stdout reads.fq 2>/dev/null >contigs; grep -v '>' contigs"
MEGAHIT = """rm -rf out
megahit -r reads.fq -t 2 -m 2000000000 -o out >/dev/null 2>&1
grep -v '>' out/final.contigs.fa | sort"""
SPADES = """rm -rf out
spades.py --only-assembler -k 21,33 -s reads.fq -t 2 -m 16 -o out >/dev/null
grep -v '>' out/contigs.fasta"""
SOAPDENOVO = """printf 'max_rd_len=100\\n[LIB]\\nasm_flags=1\\nq=reads.fq\\n' >soap.cfg
soapdenovo2-63mer pregraph -s soap.cfg -K 31 -p 2 -o soap >/dev/null 2>&1
soapdenovo2-63mer contig -g soap >/dev/null 2>&1
grep -v '>' soap.contig"""
R = """set.seed(1); n <- 4e6
d <- data.frame(k = sample.int(200000, n, TRUE), v = runif(n), s = sample(letters, n, TRUE))
o <- d[order(d$k, d$v), ]; print(tail(o)); print(aggregate(v ~ s, d, sum))
m <- matrix(runif(4e6), 2000); print(sum(solve(m + diag(2000) * 50))); print(sum(tapply(d$v, d$k, mean)))"""
# At once, each with 120 MB.
THREE = """for n in 1 2 3; do "$0" cg --bytes 120M --iterations 40 >out.$n & done; wait
grep -h ok: out.1 out.2 out.3"""
# A compiler that works with two threads. What it writes is the same each time, as all paths are.
RUSTC = """rm -rf built
cargo build --quiet --release --locked --offline --jobs 2 --manifest-path "$0" -p loam-core --target-dir built
cat built/release/libloam_core.rlib"""
NEEDS = {
    "rustc": ["cargo"],
    "megahit": ["megahit"],
    "spades": ["spades.py"],
    "soapdenovo2": ["soapdenovo2-63mer"],
    "redis": ["redis-server"],
    "abyss": ["abyss-pe"],
    "bwa": ["bwa"],
    "velvet": ["velveth", "velvetg"],
    "bowtie2": ["bowtie2-build"],
    "minimap2 and samtools": ["minimap2", "samtools"],
    "walk": [],  # built by this file
    "pool": [],
    "three": [str(ROOT / "target" / "release" / "loam-kernel")],
}


def write_redis(work, count):
    """Commands that fill a server, and that read it in another order with a quarter written again."""
    with open(work / "fill", "w", encoding="ascii") as fill, open(work / "read", "w", encoding="ascii") as again:
        for n in range(count):
            fill.write(f"SET key:{n} {str(n * 2654435761 % 4294967296) * 80}\r\n")
            other = n * 7919 % count
            again.write(f"GET key:{other}\r\n" if n % 4 else f"SET key:{other} {str(n) * 120}\r\n")


def write_genome(work, bases, reads):
    """A genome with a repeat in it, and reads of 100 bases from both strands, a third of them with an error."""
    random = Random(7)
    genome = "".join(random.choices("ACGT", k=bases))
    genome += genome[bases // 4:bases // 3]
    turned = str.maketrans("ACGT", "TGCA")
    with open(work / "genome.fa", "w", encoding="ascii") as file:
        file.write(">genome\n" + "\n".join(genome[at:at + 80] for at in range(0, len(genome), 80)) + "\n")
    with open(work / "reads.fq", "w", encoding="ascii") as file:
        for n in range(reads):
            at = random.randrange(len(genome) - 100)
            read = genome[at:at + 100] if n % 2 else genome[at:at + 100].translate(turned)[::-1]
            if n % 3 == 0:
                at = random.randrange(100)
                read = read[:at] + random.choice("ACGT") + read[at + 1:]
            file.write(f"@read{n}\n{read}\n+\n{'I' * 100}\n")


def output_of(command, path):
    with open(path, "wb") as file:
        subprocess.run(command, stdout=file, check=True)


def programs(work, tables_python):
    """Every program that is installed; each prints what it computed."""
    made, tables = ROOT / "tests" / "programs", ROOT / "bench" / "tables"
    has = lambda name: subprocess.run([tables_python, "-c", f"import {name}"], stderr=subprocess.DEVNULL, check=False).returncode == 0
    of_tables = [
        Program(name, [tables_python, str(tables / f"with_{name}.py"), rows])
        for name, rows in [("duckdb", "6000000"), ("polars", "3000000"), ("pandas", "3000000")]
        if has(name)
    ]
    walk, kernel = str(work / "walk"), ROOT / "target" / "release" / "loam-kernel"
    python = sys.executable
    all_of_them = [
        Program("sort", ["sort", "--parallel=2", "-S", "2G", "lines.txt"], lambda: write_lines(work / "lines.txt", 2_000_000)),
        Program("python", [python, str(made / "dicts.py"), "150000"]),
        Program("sqlite3", ["sh", "-c", f"sqlite3 :memory: < '{made}/table.sql'"]),
        Program("xz", ["xz", "-T2", "-9", "--block-size=16MiB", "-c", "text.txt"], lambda: write_lines(work / "text.txt", 600_000)),
        Program("gcc", ["gcc", "-O1", "-c", "big.c", "-o", "/dev/stdout"],
                lambda: output_of([python, str(made / "big_source.py"), "4000"], work / "big.c")),
        Program("rustc", ["sh", "-ec", RUSTC, str(ROOT / "Cargo.toml")], is_tree=True),
        Program("java", ["java", "-Xmx1g", str(made / "Maps.java"), "250000"]),
        Program("node", ["node", "--max-old-space-size=2048", str(made / "objects.js"), "200000"]),
        Program("redis", ["sh", "-c", REDIS], lambda: write_redis(work, 150_000)),
        Program("velvet", ["sh", "-ec", VELVET], lambda: write_genome(work, 1_000_000, 150_000)),
        Program("abyss", ["sh", "-ec", ABYSS], lambda: write_genome(work, 1_000_000, 150_000)),
        Program("bwa", ["sh", "-ec", BWA], lambda: write_genome(work, 12_000_000, 0)),
        Program("bowtie2", ["sh", "-ec", BOWTIE2], lambda: write_genome(work, 12_000_000, 0)),
        Program("minimap2 and samtools", ["sh", "-ec", SAMTOOLS], lambda: write_genome(work, 4_000_000, 400_000)),
        Program("megahit", ["sh", "-ec", MEGAHIT], lambda: write_genome(work, 2_000_000, 400_000)),
        Program("spades", ["sh", "-ec", SPADES], lambda: write_genome(work, 2_000_000, 400_000)),
        Program("soapdenovo2", ["sh", "-ec", SOAPDENOVO], lambda: write_genome(work, 2_000_000, 400_000)),
        Program("R", ["Rscript", "-e", R]),
        Program("pool", [python, str(made / "pool.py"), "1500000", "3"], is_tree=True),
        Program("three", ["sh", "-ec", THREE, str(kernel)], is_tree=True),
        Program("walk", [walk, "512", "2", "anon"],
                lambda: subprocess.run(["gcc", "-O2", "-o", walk, str(ROOT / "bench" / "walk.c")], check=True)),
    ]
    all_of_them += of_tables
    return [program for program in all_of_them if all(shutil.which(name) for name in NEEDS.get(program.name, program.command[:1]))]


class Comparison:
    def __init__(self, args, work):
        self.args, self.work, self.notes = args, work, []

    def time(self, command, wanted, before_exec=None):
        """Median wall time of --repeat runs, or what went wrong."""
        times = []
        for _ in range(self.args.repeat):
            empty_cache()
            wall_s, _, code, digest, words = run(command, self.work, self.args.limit, before_exec)
            if code != 0:
                self.notes.append(f"{' '.join(map(str, command[:6]))}…: status {code}: {words[-200:]}")
                return code if "no end" in str(code) else f"failed ({code})"
            if digest != wanted:
                return "WRONG OUTPUT"
            times.append(wall_s)
        return f"{statistics.median(times):.1f}"

    def tell_help(self, way, program, group):
        if group.helped:
            limit_mib = group.limit_bytes // MIB
            self.notes.append(f"{way}, {program.name}, {limit_mib} MiB: reclaim was stuck {group.helped} times and got {HELP_BYTES // MIB} MiB more for a moment")

    def loam(self, program, limit_bytes, peak_bytes, wanted, page="auto"):
        lent = f"2x{max(256, peak_bytes // MIB)}M"
        command = [self.args.loam, "run", "--quiet", "--local", str(limit_bytes), "--embedded", lent, "--disk", str(self.work / "slots")]
        command += ["--page", page]
        return self.time([*command, "--", *program.command], wanted)

    def disk(self, program, limit_bytes, peak_bytes, wanted):
        with disk_swap(self.work, 2 * peak_bytes + 256 * MIB), Cgroup(limit_bytes) as group:
            result = self.time(program.command, wanted, group.join)
            self.tell_help("swap file", program, group)
            return result

    def zram(self, program, limit_bytes, peak_bytes, wanted):
        with zram_swap(2 * peak_bytes + 256 * MIB) as device, Cgroup(limit_bytes) as group:
            result = self.time(program.command, wanted, group.join)
            self.tell_help("zram", program, group)
            fields = read(device / "mm_stat").split()
            if len(fields) > 4:
                self.notes.append(f"{program.name}: zram held up to {int(fields[4]) // MIB} MiB of local memory beyond the limit of {limit_bytes // MIB} MiB")
            return result

    def file(self, program, limit_bytes, _peak_bytes, wanted):
        if program.name != "walk":
            return "–"
        path = self.work / "mapped"
        try:
            with Cgroup(limit_bytes) as group:
                return self.time([*program.command[:-1], str(path)], wanted, group.join)
        finally:
            path.unlink(missing_ok=True)

    def rows(self, program):
        if program.prepare:
            program.prepare()
        try:
            with Cgroup(BOUNDLESS_BYTES) if program.is_tree else contextlib.nullcontext() as group:
                before_exec = group.join if group else None
                wall_s, peak_bytes, code, wanted, words = run(program.command, self.work, self.args.limit, before_exec)
                peak_bytes = group.peak_bytes() if group else peak_bytes
        except Unavailable as why:
            self.notes.append(f"{program.name}: how much its processes have together is not known without root: {why}")
            return
        if code != 0:
            self.notes.append(f"{program.name}: plain run failed ({code}): {words[-200:]}")
            return
        for part in self.args.parts:
            limit_bytes = max(32 * MIB, peak_bytes * part // 100)
            cells = [program.name, f"{peak_bytes // MIB} MiB", f"{part}%", f"{wall_s:.1f}"]
            for way in self.args.ways:
                try:
                    name, *page = way.split(":")
                    cells.append(getattr(self, name)(program, limit_bytes, peak_bytes, wanted, *page))
                except Unavailable as why:
                    note = f"{way}: {why}"
                    if note not in self.notes:
                        self.notes.append(note)
                    cells.append("n/a")
            yield cells


PAGES = ["4K", "16K", "64K", "256K", "1M"]
HEADINGS = {"loam": "Loam", "disk": "swap file", "zram": "zram", "file": "mapped file"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(number) for number in text.split(",")]
    names = lambda text: text.split(",")
    parser.add_argument("--loam", default=str(ROOT / "target" / "release" / "loam"), help="the executable")
    parser.add_argument("--parts", type=numbers, default=[25, 50], help="percents of the plain peak")
    parser.add_argument("--ways", type=names, default=list(HEADINGS), help="any of " + ",".join(HEADINGS) + ", and loam:4K and so on")
    parser.add_argument("--programs", type=names, help="only these")
    parser.add_argument("--python", default=sys.executable, help="one that has DuckDB, Polars and pandas, for those of them that are to be tried")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each; the median counts")
    parser.add_argument("--limit", type=int, default=300, help="seconds after which a run is ended")
    parser.add_argument("--dir", default="/var/tmp", help="folder on the disk to compare with")
    parser.add_argument("--out", help="write the table here too")
    args = parser.parse_args()
    headings = HEADINGS | {f"loam:{page}": f"Loam, {page}" for page in PAGES}
    unknown = set(args.ways) - set(headings)
    if unknown:
        parser.error(f"no such way: {', '.join(sorted(unknown))}")
    if not all(0 < part <= 100 for part in args.parts) or args.repeat < 1:
        parser.error("--parts are percents from 1 to 100, --repeat is at least 1")
    if any(way.startswith("loam") for way in args.ways):
        args.loam = str(Path(args.loam).resolve())
        if not os.access(args.loam, os.X_OK):
            parser.error(f"{args.loam} is not there: make build, or name it with --loam")
    args.python = os.path.abspath(shutil.which(args.python) or args.python)  # it is run in another folder
    # Ctrl-C and kill unwind the stack, so that swap and cgroup are taken down.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    work = Path(tempfile.mkdtemp(prefix="loam-compare-", dir=args.dir))
    lines = []
    try:
        comparison = Comparison(args, work)
        emit = lambda line: (lines.append(line), print(line, flush=True))
        columns = ["program", "plain peak", "local", "plain s", *(headings[way] + " s" for way in args.ways)]
        emit("| " + " | ".join(columns) + " |")
        emit("|" + " --- |" * len(columns))
        for program in programs(work, args.python):
            if args.programs and program.name not in args.programs:
                continue
            for cells in comparison.rows(program):
                emit("| " + " | ".join(cells) + " |")
        emit("")
        memory_kb = re.search(r"MemTotal: +(\d+)", read("/proc/meminfo"))[1]
        emit(f"Linux {os.uname().release}, {os.cpu_count()} cores, {memory_kb} kB of memory; {time.strftime('%Y-%m-%d')}.")
        for note in comparison.notes:
            emit(f"- {note}")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if args.out:
        Path(args.out).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
