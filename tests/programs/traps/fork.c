/* A forked child sees its parent's memory as it was, whatever becomes of either afterwards. */
#include "traps.h"
#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static unsigned char *area;

/* One byte through a pipe: the other side may go on. */
static void tell(int fd) { EXPECT(write(fd, "g", 1) == 1); }
static void await(int fd) {
    char byte;
    ssize_t got;
    do got = read(fd, &byte, 1);
    while (got < 0 && errno == EINTR);
    EXPECT(got == 1);
}

/* Pages of `area` with this remainder modulo 2 get another seed. */
static void rewrite_half(size_t remainder, uint64_t seed) {
    for (size_t at = remainder * PAGE_BYTES; at < options.data_bytes; at += 2 * PAGE_BYTES)
        fill_at(area + at, PAGE_BYTES, seed, at);
}
static void check_half(const char *what, size_t remainder, uint64_t seed) {
    for (size_t at = remainder * PAGE_BYTES; at < options.data_bytes; at += 2 * PAGE_BYTES)
        check_at(what, area + at, PAGE_BYTES, seed, at);
}

static void both_write_child(void *unused) {
    (void)unused;
    rewrite_half(0, 12);
    sweep();
    check_half("child's own pages", 0, 12);
    check_half("child's inherited pages", 1, 11);
}
static void both_write(void) {
    area = area_new(options.data_bytes);
    fill(area, options.data_bytes, 11);
    sweep();
    for (int round = 0; round < 2; round++) {
        pid_t pid = child_start(both_write_child, NULL);
        rewrite_half(1, 13);
        sweep();
        check_half("parent's own pages", 1, 13);
        check_half("parent's old pages", 0, 11);
        child_join(pid);
        check_half("parent's own pages after the child", 1, 13);
        rewrite_half(1, 11);
    }
}

enum { WORKERS = 4 };
static void pool_worker(void *argument) {
    uint64_t seed = (uintptr_t)argument;
    /* What was used last is what all of them share. */
    unsigned char *last = area + options.data_bytes / 2;
    for (int round = 0; round < 2; round++) {
        fill(last, options.data_bytes / 2, seed + (uint64_t)round);
        check("a worker's own half", last, options.data_bytes / 2, seed + (uint64_t)round);
    }
    check("what it has inherited", area, options.data_bytes / 2, 50);
}
/* A pool of workers: each writes to all that was here when it was forked, as its parent does, and the kernel tells nobody of the copies. */
static void pool(void) {
    area = area_new(options.data_bytes);
    fill(area, options.data_bytes / 2, 50);
    fill(area + options.data_bytes / 2, options.data_bytes / 2, 51);
    pid_t pids[WORKERS];
    for (uintptr_t n = 0; n < WORKERS; n++) pids[n] = child_start(pool_worker, (void *)(60 + 2 * n));
    pool_worker((void *)80);
    for (int n = 0; n < WORKERS; n++) child_join(pids[n]);
    check("the parent's half", area + options.data_bytes / 2, options.data_bytes / 2, 81);
}

static int to_child[2], to_parent[2];
static void snapshot_child(void *unused) {
    (void)unused;
    for (int round = 0; round < 3; round++) {
        await(to_child[0]);
        check("snapshot", area, options.data_bytes, 20);
        sweep();
        tell(to_parent[1]);
    }
}
/* The child lives long and never execs, while its parent changes everything several times (a database's BGSAVE). */
static void snapshot(void) {
    area = area_new(options.data_bytes);
    fill(area, options.data_bytes, 20);
    sweep();
    EXPECT(pipe(to_child) == 0 && pipe(to_parent) == 0);
    pid_t pid = child_start(snapshot_child, NULL);
    for (uint64_t round = 0; round < 3; round++) {
        fill(area, options.data_bytes, 21 + round);
        sweep();
        tell(to_child[1]);
        check("parent beside its child", area, options.data_bytes, 21 + round);
        await(to_parent[0]);
    }
    child_join(pid);
    check("parent after its child", area, options.data_bytes, 23);
}

static void tree_body(void *argument) {
    uintptr_t depth = (uintptr_t)argument;
    check("inherited from the parent", area, options.data_bytes, 30 + depth - 1);
    fill(area, options.data_bytes, 30 + depth);
    pid_t pid = depth < 3 ? child_start(tree_body, (void *)(depth + 1)) : 0;
    sweep();
    check("own version", area, options.data_bytes, 30 + depth);
    if (pid != 0) child_join(pid);
}
static void tree(void) {
    area = area_new(options.data_bytes / 2);
    options.data_bytes /= 2;
    fill(area, options.data_bytes, 30);
    sweep();
    pid_t pid = child_start(tree_body, (void *)1);
    sweep();
    child_join(pid);
    check("first of the tree", area, options.data_bytes, 30);
}

/* The parent ends first; the orphan goes on with what it inherited. */
static void orphan_body(void *unused) {
    (void)unused;
    char byte;
    EXPECT(read(to_child[0], &byte, 1) == 0); /* end of file: the parent has gone */
    sweep();
    check("orphan", area, options.data_bytes, 40);
    tell(to_parent[1]);
}
static void orphan_parent(void *unused) {
    (void)unused;
    EXPECT(pipe(to_child) == 0);
    fill(area, options.data_bytes, 40);
    sweep();
    fflush(NULL);
    pid_t pid = fork();
    EXPECT(pid >= 0);
    if (pid == 0) {
        alarm(options.limit_s);
        close(to_child[1]);
        orphan_body(NULL);
        _exit(0);
    }
}
static void orphan(void) {
    area = area_new(options.data_bytes);
    EXPECT(pipe(to_parent) == 0);
    child_join(child_start(orphan_parent, NULL));
    await(to_parent[0]);
}

/* A parent that ends as soon as it has forked, while its pages are being taken: what a daemon does when it starts. Each of a line does so. */
static void daemon_body(unsigned generation) {
    size_t half = options.data_bytes / 2, quarter = half / 2;
    for (; generation < 16; generation++) {
        check("what is left to the next", area, quarter, 60 + generation);
        fill(area, quarter, 61 + generation);
        fill(area + quarter, quarter, 80 + generation); /* so that pages leave, right now */
        pid_t pid = fork();
        EXPECT(pid >= 0);
        if (pid != 0) _exit(0);
        alarm(options.limit_s);
        check("what was leaving at the fork", area + quarter, quarter, 80 + generation);
    }
    check("of the last", area, quarter, 60 + generation);
    tell(to_parent[1]);
}
static void daemons_child(void *unused) {
    (void)unused;
    daemon_body(0);
}
static void daemons(void) {
    area = area_new(options.data_bytes);
    fill(area, options.data_bytes / 4, 60);
    EXPECT(pipe(to_parent) == 0);
    child_join(child_start(daemons_child, NULL));
    EXPECT(close(to_parent[1]) == 0);
    await(to_parent[0]); /* or end of file, when one of them has died */
    check("the first one's", area, options.data_bytes / 4, 60);
}

static volatile bool stop;
static void *writer(void *argument) {
    size_t half = options.data_bytes / 2;
    for (uint64_t round = 0; !stop; round++) {
        fill_at(area + half, half, 51 + round, half);
        check_at("writer thread", area + half, half, 51 + round, half);
    }
    return argument;
}
static void short_child(void *argument) {
    size_t half = options.data_bytes / 2;
    uint64_t x = (uintptr_t)argument;
    for (int i = 0; i < 200; i++) {
        size_t at = (x = splitmix64(x)) % (half / PAGE_BYTES) * PAGE_BYTES;
        check_at("storm child", area + at, PAGE_BYTES, 50, at);
        fill_at(area + at, PAGE_BYTES, 59, at);
        check_at("storm child's own", area + at, PAGE_BYTES, 59, at);
        fill_at(area + at, PAGE_BYTES, 50, at);
    }
}
/* Many short children while another thread writes all the time. */
static void storm(void) {
    area = area_new(options.data_bytes);
    fill(area, options.data_bytes, 50);
    sweep();
    pthread_t thread = thread_start(writer, NULL);
    for (uintptr_t i = 0; i < 40; i += 2) {
        pid_t first = child_start(short_child, (void *)i), second = child_start(short_child, (void *)(i + 1));
        child_join(first);
        child_join(second);
    }
    stop = true;
    thread_join(thread);
    check("parent after the storm", area, options.data_bytes / 2, 50);
}

/* A child that libc does not know of: no at-fork handler runs in it. */
static void raw(void) {
    area = area_new(options.data_bytes);
    fill(area, options.data_bytes, 60);
    sweep();
    fflush(NULL);
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    EXPECT(pid >= 0);
    if (pid == 0) {
        alarm(options.limit_s);
        check("child behind libc's back", area, options.data_bytes, 60);
        rewrite_half(0, 61);
        check_half("its own pages", 0, 61);
        _exit(0);
    }
    fill(area, options.data_bytes, 62);
    sweep();
    child_join(pid);
    check("parent", area, options.data_bytes, 62);
}

static void killed_body(void *unused) {
    (void)unused;
    for (uint64_t round = 0;; round++) fill(area, options.data_bytes, 71 + round), sweep();
}
static void child_killed(void) {
    area = area_new(options.data_bytes);
    fill(area, options.data_bytes, 70);
    sweep();
    for (int round = 0; round < 4; round++) {
        pid_t pid = child_start(killed_body, NULL);
        usleep(50000);
        int status;
        EXPECT(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid);
        EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        check("parent of a killed child", area, options.data_bytes, 70);
        sweep();
    }
}

static void wipe_child(void *unused) {
    (void)unused;
    check_zero("wiped in the child", area, options.data_bytes / 2);
    check_at("kept in the child", area + options.data_bytes / 2, options.data_bytes / 2, 80, options.data_bytes / 2);
}
static void keep_child(void *seed) {
    sweep();
    check("kept again", area, options.data_bytes, (uintptr_t)seed);
}
static void wipe_on_fork(void) {
    area = area_new(options.data_bytes);
    fill(area, options.data_bytes, 80);
    sweep();
    EXPECT(madvise(area, options.data_bytes / 2, MADV_WIPEONFORK) == 0);
    sweep();
    child_join(child_start(wipe_child, NULL));
    check("parent of a wiped child", area, options.data_bytes, 80);
    EXPECT(madvise(area, options.data_bytes / 2, MADV_KEEPONFORK) == 0);
    sweep();
    child_join(child_start(keep_child, (void *)80));
    check("parent at the end", area, options.data_bytes, 80);
}

/* What is to be wiped in children is let go, and comes home for that; several threads ask at once, each for its own part. */
static void *wipe_part(void *argument) {
    size_t bytes = options.data_bytes / 16;
    unsigned char *at = area + 2 * (uintptr_t)argument * bytes;
    EXPECT(madvise(at, bytes, MADV_WIPEONFORK) == 0);
    check_at("let go", at, bytes, 90, (size_t)(at - area));
    return NULL;
}
static void parts_child(void *unused) {
    (void)unused;
    size_t bytes = options.data_bytes / 16;
    for (size_t i = 0; i < 4; i++) {
        check_zero("wiped part", area + 2 * i * bytes, bytes);
        check_at("part between", area + (2 * i + 1) * bytes, bytes, 90, (2 * i + 1) * bytes);
    }
}
static void wipe_by_threads(void) {
    area = area_new(options.data_bytes);
    fill(area, options.data_bytes, 90);
    for (int round = 0; round < 4; round++) {
        sweep();
        pthread_t threads[4];
        for (uintptr_t i = 0; i < 4; i++) threads[i] = thread_start(wipe_part, (void *)i);
        for (int i = 0; i < 4; i++) thread_join(threads[i]);
        child_join(child_start(parts_child, NULL));
        EXPECT(madvise(area, options.data_bytes, MADV_KEEPONFORK) == 0);
    }
    sweep();
    check("parent at the end", area, options.data_bytes, 90);
}

/* A child's handlers run in the order in which they were asked for, this one before any that a library asks for when it is loaded. */
static unsigned char *fills_hole_at_fork;
static unsigned char *hole_new(void) {
    return mmap(area, options.data_bytes / 4, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
}
static void first_in_child(void) {
    if (fills_hole_at_fork) fills_hole_at_fork = hole_new();
}
static void before_all_others(void) { pthread_atfork(NULL, NULL, first_in_child); }
__attribute__((section(".preinit_array"), used)) static void (*preinit)(void) = before_all_others;

static void dont_child(void *unused) {
    (void)unused;
    size_t kept = options.data_bytes / 4;
    unsigned char *fresh = fills_hole_at_fork;
    if (!fresh) {
        unsigned char present;
        EXPECT(mincore(area, PAGE_BYTES, &present) == -1 && errno == ENOMEM);
        /* The hole is free for others, at once. */
        fresh = hole_new();
    }
    EXPECT(fresh == area);
    check_zero("fresh memory in the hole", fresh, kept);
    for (uint64_t round = 0; round < 2; round++) {
        fill(fresh, kept, 91 + round);
        for (int swept = 0; swept < 2; swept++) sweep();
        check("written in the hole", fresh, kept, 91 + round);
    }
    check_at("kept in the child", area + kept, options.data_bytes - kept, 90, kept);
}
/* What is kept from children is here at the fork. */
static size_t keep_from_children(void) {
    size_t kept = options.data_bytes / 4;
    area = area_new(options.data_bytes);
    fill(area, options.data_bytes, 90);
    sweep();
    EXPECT(madvise(area, kept, MADV_DONTFORK) == 0);
    check("kept from children", area, kept, 90);
    return kept;
}
static void dont_fork(void) {
    size_t kept = keep_from_children();
    pid_t pid = child_start(dont_child, NULL);
    sweep();
    check("parent", area, options.data_bytes, 90);
    child_join(pid);
    check("parent at the end", area, options.data_bytes, 90);
    EXPECT(madvise(area, kept, MADV_DOFORK) == 0);
    sweep();
    child_join(child_start(keep_child, (void *)90));
    check("parent of a child that has all", area, options.data_bytes, 90);
}
/* The same of memory that was kept from children before anything of it could leave, and that has moved since. */
static void dont_fork_early(void) {
    size_t kept = options.data_bytes / 4;
    unsigned char *early = area_new(kept);
    EXPECT(madvise(early, kept, MADV_DONTFORK) == 0);
    area = area_new(options.data_bytes);
    EXPECT(mremap(early, kept, kept, MREMAP_MAYMOVE | MREMAP_FIXED, area) == area);
    fill(area, options.data_bytes, 90);
    sweep();
    check("kept from children", area, kept, 90);
    pid_t pid = child_start(dont_child, NULL);
    sweep();
    check("parent", area, options.data_bytes, 90);
    child_join(pid);
    check("parent at the end", area, options.data_bytes, 90);
}

/* The same where what a child has at that place was there before it joined. */
static void dont_fork_at_fork(void) {
    keep_from_children();
    fills_hole_at_fork = area;
    pid_t pid = child_start(dont_child, NULL);
    sweep();
    child_join(pid);
    check("parent at the end", area, options.data_bytes, 90);
}

/* Memory that moves, or grows, to where some was that children were not to have: of that the kernel tells nobody. */
static void over_child(void *unused) {
    (void)unused;
    size_t half = options.data_bytes / 4;
    check("in the child", area, half, 95);
    check_zero("grown, in the child", area + half, half);
    fill_at(area + half, half, 95, half);
    sweep();
    check("written by the child", area, 2 * half, 95);
}
static void over_what_was_kept(void) {
    size_t half = options.data_bytes / 4;
    for (int moves = 0; moves < 2; moves++) {
        unsigned char *place = area_new(2 * half);
        EXPECT(madvise(place + half, half, MADV_DONTFORK) == 0);
        area = moves ? area_new(half) : place;
        fill(area, half, 95);
        sweep();
        sweep();
        if (moves)
            EXPECT(mremap(area, half, 2 * half, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place);
        else
            EXPECT(munmap(place + half, half) == 0 && mremap(place, half, 2 * half, 0) == place);
        area = place;
        child_join(child_start(over_child, NULL));
        fill_at(area + half, half, 95, half);
        sweep();
        check("parent", area, 2 * half, 95);
        /* Once more: it was hidden again when that fork was over. */
        EXPECT(madvise(area + half, half, MADV_DONTNEED) == 0);
        child_join(child_start(over_child, NULL));
        EXPECT(munmap(area, 2 * half) == 0);
    }
}

static void shared_child(void *argument) {
    unsigned char *shared = argument;
    check("shared memory in the child", shared, 8 * MIB, 100);
    fill(shared, 4 * MIB, 101);
    sweep();
    check("private memory in the child", area, options.data_bytes, 102);
    check("shared memory after a sweep", shared, 4 * MIB, 101);
}
static void shared_anonymous(void) {
    unsigned char *shared = mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT(shared != MAP_FAILED);
    fill(shared, 8 * MIB, 100);
    area = area_new(options.data_bytes);
    fill(area, options.data_bytes, 102);
    sweep();
    child_join(child_start(shared_child, shared));
    check("written by the child", shared, 4 * MIB, 101);
    check_at("left by the child", shared + 4 * MIB, 4 * MIB, 100, 4 * MIB);
    check("private memory", area, options.data_bytes, 102);
}

/* Everything of the process is locked for a moment, or read from outside: memory of Loam's own with it. */
static void inherits(void *unused) {
    (void)unused;
    check("inherited", area, options.data_bytes, 110);
    rewrite_half(0, 111);
    sweep();
    check_half("own", 0, 111);
    check_half("inherited and left alone", 1, 110);
}
static void after_lock(void) {
    if (mlockall(MCL_CURRENT) != 0) skip("mlockall is not permitted here");
    EXPECT(munlockall() == 0);
    area = area_new(options.data_bytes);
    fill(area, options.data_bytes, 110);
    sweep();
    for (int round = 0; round < 2; round++) child_join(child_start(inherits, NULL));
}

/* Reads the first page of every small mapping, as a debugger may. */
static void scan(void) {
    FILE *maps = fopen("/proc/self/maps", "re");
    int memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    EXPECT(maps != NULL && memory >= 0);
    unsigned long start, end;
    for (char line[4096]; fgets(line, sizeof line, maps) != NULL;) {
        unsigned char page[PAGE_BYTES];
        EXPECT(sscanf(line, "%lx-%lx", &start, &end) == 2);
        if (end - start <= MIB) (void)!pread(memory, page, sizeof page, (off_t)start);
    }
    EXPECT(fclose(maps) == 0 && close(memory) == 0);
}
static void after_scan(void) {
    area = area_new(options.data_bytes);
    fill(area, options.data_bytes, 110);
    sweep();
    for (int round = 0; round < 2; round++) {
        scan();
        child_join(child_start(inherits, NULL));
    }
}

/* A mapping that grows keeps what is said of it; the new part is the child's as well, that which nobody has touched, too. */
static size_t grown_bytes, touched_bytes;
static void grown_child(void *unused) {
    (void)unused;
    check("grown, in the child", area, touched_bytes, 120);
    check_zero("new in the child", area + touched_bytes, grown_bytes - touched_bytes);
    fill(area, grown_bytes, 121);
    check("rewritten by the child", area, grown_bytes, 121);
}
static void grown(void) {
    size_t step = options.data_bytes / 4;
    area = area_new(step);
    fill(area, step, 120);
    sweep();
    for (size_t bytes = step; bytes < options.data_bytes; bytes = grown_bytes) {
        grown_bytes = bytes + step;
        touched_bytes = bytes + step / 2;
        area = mremap(area, bytes, grown_bytes, MREMAP_MAYMOVE);
        EXPECT(area != MAP_FAILED);
        fill_at(area + bytes, step / 2, 120, bytes);
        child_join(child_start(grown_child, NULL));
        fill_at(area + touched_bytes, step / 2, 120, touched_bytes);
        sweep();
    }
    check("grown", area, grown_bytes, 120);
}

/* What was just growing when its parent forked, or its parent's parent, a child resizes and moves as one mapping. */
static unsigned char *growing;
static size_t growing_bytes;
static void grow_by(size_t pages) {
    for (size_t page = 0; page < pages; page++, growing_bytes += PAGE_BYTES) {
        growing = mremap(growing, growing_bytes, growing_bytes + PAGE_BYTES, MREMAP_MAYMOVE);
        EXPECT(growing != MAP_FAILED);
        check_zero("new", growing + growing_bytes, PAGE_BYTES);
        fill_at(growing + growing_bytes, PAGE_BYTES, 131, growing_bytes);
    }
}
static void growing_child(void *depth) {
    grow_by(20);
    unsigned char *there = area_new(2 * growing_bytes);
    EXPECT(mremap(growing, growing_bytes, growing_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, there) == there);
    growing = there;
    check("moved in a child", growing, growing_bytes, 131);
    if (depth != NULL) child_join(child_start(growing_child, NULL));
    check("moved, and shared with a grandchild", growing, growing_bytes, 131);
}
static void grows_in_children(void) {
    area = area_new(options.data_bytes);
    fill(area, options.data_bytes, 130);
    sweep();
    for (int round = 0; round < 60; round++) {
        growing_bytes = 256 * PAGE_BYTES;
        growing = area_new(growing_bytes);
        fill(growing, growing_bytes, 131);
        grow_by(40 + (size_t)round);
        child_join(child_start(growing_child, &growing));
        grow_by(20);
        check("grown", growing, growing_bytes, 131);
        EXPECT(munmap(growing, growing_bytes) == 0);
        if (round % 20 == 0) check("beside it", area, options.data_bytes, 130);
    }
}

/* The same of memory that is executed as well, which Loam may refuse to resize there (EFAULT), but not give back as memory that is not. */
static void run_code(void) {
    static const unsigned char code[] = {0x48, 0x8d, 0x47, 0x01, 0xc3}; /* lea rax, [rdi + 1]; ret */
    memcpy(growing, code, sizeof code);
    EXPECT(((long (*)(long))(uintptr_t)growing)(41) == 42);
    fill(growing, PAGE_BYTES, 131);
}
static void grow_code_by(size_t pages) {
    for (size_t page = 0; page < pages; page++, growing_bytes += PAGE_BYTES) {
        unsigned char *there = mremap(growing, growing_bytes, growing_bytes + PAGE_BYTES, MREMAP_MAYMOVE);
        if (there == MAP_FAILED && errno == EFAULT) break;
        EXPECT(there != MAP_FAILED);
        growing = there;
        fill_at(growing + growing_bytes, PAGE_BYTES, 131, growing_bytes);
    }
    run_code();
}
static void code_child(void *unused) {
    (void)unused;
    grow_code_by(1);
    check("grown in a child", growing, growing_bytes, 131);
}
static void code_grows_in_children(void) {
    area = area_new(options.data_bytes);
    fill(area, options.data_bytes, 130);
    sweep();
    for (int round = 0; round < 100; round++) {
        growing_bytes = 256 * PAGE_BYTES;
        growing = mmap(NULL, growing_bytes, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (growing == MAP_FAILED && errno == EACCES) skip("this system allows no memory that is both written and executed");
        EXPECT(growing != MAP_FAILED);
        fill(growing, growing_bytes, 131);
        grow_code_by(40 + (size_t)round);
        child_join(child_start(code_child, NULL));
        check("grown", growing, growing_bytes, 131);
        EXPECT(munmap(growing, growing_bytes) == 0);
        if (round % 20 == 0) check("beside it", area, options.data_bytes, 130);
    }
}

/* With as many descriptors open as there may be, and with a few less: a fork needs none. Nor does what children are to find empty. */
enum { OPEN_MAX_HERE = 64 };
static void expect_limit(void) {
    struct rlimit limit;
    EXPECT(getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur == OPEN_MAX_HERE);
}
static void full_child(void *unused) {
    (void)unused;
    expect_limit();
    check("inherited", area, options.data_bytes, 140);
    rewrite_half(0, 141);
    sweep();
    check_half("own", 0, 141);
    check_half("inherited and left alone", 1, 140);
}
static void full(void) {
    struct rlimit limit;
    EXPECT(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    if (limit.rlim_max < OPEN_MAX_HERE + 16) skip("the hard limit of descriptors is too low");
    limit.rlim_cur = OPEN_MAX_HERE;
    EXPECT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    area = area_new(options.data_bytes);
    fill(area, options.data_bytes, 140);
    sweep();
    int last = -1;
    for (int fd; (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) last = fd;
    EXPECT(errno == EMFILE && last == OPEN_MAX_HERE - 1);
    for (int room = 0; room < 6; room++) {
        child_join(child_start(full_child, NULL));
        expect_limit();
        check("parent", area, options.data_bytes, 140);
        EXPECT(close(last--) == 0);
    }
    while (open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0) {}
    EXPECT(madvise(area, PAGE_BYTES, MADV_WIPEONFORK) == 0);
    expect_limit();
    EXPECT(open("/dev/null", O_RDONLY | O_CLOEXEC) == -1 && errno == EMFILE);
}

const struct trap traps_fork[] = {
    {"fork_both_write", both_write, "parent and child rewrite different pages", 0},
    {"fork_pool", pool, "workers and their parent write to all that they share", 0},
    {"fork_snapshot", snapshot, "a child that lives long without exec keeps the memory of the fork", 0},
    {"fork_tree", tree, "children, grandchildren, great-grandchildren, each with its own version", 0},
    {"fork_orphan", orphan, "the parent ends first", 0},
    {"fork_daemon", daemons, "each of a line forks and ends at once", 0},
    {"fork_storm", storm, "many short children while a thread writes", 0},
    {"fork_raw", raw, "a child made by the system call itself", 0},
    {"fork_child_killed", child_killed, "children killed in the middle of writing", 0},
    {"fork_wipe", wipe_on_fork, "MADV_WIPEONFORK and back", 0},
    {"fork_wipe_threads", wipe_by_threads, "MADV_WIPEONFORK by four threads at once", 0},
    {"fork_dont", dont_fork, "MADV_DONTFORK and back", 0},
    {"fork_dont_early", dont_fork_early, "MADV_DONTFORK before anything leaves, of memory that moves", 0},
    {"fork_dont_at_fork", dont_fork_at_fork, "MADV_DONTFORK, and a child that maps memory there in its fork handler", 0},
    {"fork_over_kept", over_what_was_kept, "memory that comes to where some was that children were not to have", 0},
    {"fork_after_lock", after_lock, "after mlockall and munlockall", 0},
    {"fork_after_scan", after_scan, "after a look into every mapping from outside", 0},
    {"fork_grown", grown, "memory that mremap has made larger", 0},
    {"fork_growing", grows_in_children, "memory that is just growing by mremap, and grows on in children", 0},
    {"fork_growing_code", code_grows_in_children, "the same of memory that is executed", 0},
    {"fork_full", full, "with as many descriptors open as there may be", 0},
    {"shared_anonymous", shared_anonymous, "MAP_SHARED memory with a child", 0},
    {NULL, NULL, NULL, 0},
};
