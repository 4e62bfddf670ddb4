/* Protection, locking and advice that change while pages are away. */
#include "traps.h"
#include <setjmp.h>

static unsigned char *area;

static void prepare(uint64_t seed) {
    area = area_new(options.data_bytes);
    fill(area, options.data_bytes, seed);
    sweep();
}

static sigjmp_buf back;
static void on_segv(int signal) { siglongjmp(back, signal); }
/* The access must raise SIGSEGV, whether the page is here or away. */
static void expect_segv(const char *what, volatile uint64_t *at, bool write) {
    struct sigaction action = {.sa_handler = on_segv}, old;
    EXPECT(sigaction(SIGSEGV, &action, &old) == 0);
    if (sigsetjmp(back, 1) == 0) {
        uint64_t got = 0;
        if (write) *at = 1;
        else got = *at;
        fail(false, "%s at %p did not raise SIGSEGV (read %016llx)", what, (void *)at, (unsigned long long)got);
    }
    EXPECT(sigaction(SIGSEGV, &old, NULL) == 0);
}

static void read_only(void) {
    prepare(400);
    for (int round = 0; round < 2; round++) {
        EXPECT(mprotect(area, options.data_bytes, PROT_READ) == 0);
        sweep();
        check("read-only", area, options.data_bytes, 400);
        for (size_t at = 0; at < options.data_bytes; at += 16 * MIB)
            expect_segv("a write to read-only memory", (volatile uint64_t *)(area + at), true);
        EXPECT(mprotect(area, options.data_bytes, PROT_READ | PROT_WRITE) == 0);
        check("writable again", area, options.data_bytes, 400);
        sweep();
    }
    fill(area, options.data_bytes, 401);
    sweep();
    check("rewritten", area, options.data_bytes, 401);
}

static void none(void) {
    prepare(410);
    for (int round = 0; round < 2; round++) {
        EXPECT(mprotect(area, options.data_bytes, PROT_NONE) == 0);
        sweep();
        for (size_t at = 0; at < options.data_bytes; at += 16 * MIB)
            expect_segv("a read of protected memory", (volatile uint64_t *)(area + at), false);
        EXPECT(mprotect(area, options.data_bytes, round == 0 ? PROT_READ : PROT_READ | PROT_WRITE) == 0);
        sweep();
        check("readable again", area, options.data_bytes, 410);
    }
}

/* Memory of a just-in-time compiler, or of Lisp: to be executed as well, all of it at first, then every other block. */
static void executable(void) {
    static const unsigned char code[] = {0x48, 0x8d, 0x47, 0x01, 0xc3}; /* lea rax, [rdi + 1]; ret */
    area = mmap(NULL, options.data_bytes, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED && errno == EACCES) skip("this system allows no memory that is both written and executed");
    EXPECT(area != MAP_FAILED);
    size_t block = 1 * MIB;
    for (int round = 0; round < 2; round++) {
        fill(area, options.data_bytes, 415);
        for (size_t at = 0; at < options.data_bytes; at += 2 * block) memcpy(area + at, code, sizeof code);
        sweep();
        for (size_t at = 0; at < options.data_bytes; at += 2 * block) {
            EXPECT(((long (*)(long))(uintptr_t)(area + at))((long)at) == (long)at + 1);
            check_at("behind code", area + at + 8, block - 8, 415, at + 8);
            check_at("between", area + at + block, block, 415, at + block);
        }
        for (size_t at = block; at < options.data_bytes; at += 2 * block)
            EXPECT(mprotect(area + at, block, PROT_READ | PROT_WRITE) == 0);
    }
}

/* What a collector does: threads protect and unprotect blocks of their own, all the time. */
static void *protector(void *argument) {
    size_t half = options.data_bytes / 2, block = 64 * PAGE_BYTES;
    unsigned char *mine = argument;
    uint64_t x = (uintptr_t)mine;
    for (int round = 0; round < 1500; round++) {
        size_t at = (x = splitmix64(x)) % (half / block) * block;
        EXPECT(mprotect(mine + at, block, x & 1024 ? PROT_READ : PROT_NONE) == 0);
        size_t other = (x = splitmix64(x)) % (half / block) * block;
        if (other != at) check_at("block beside", mine + other, block, 420, other);
        EXPECT(mprotect(mine + at, block, PROT_READ | PROT_WRITE) == 0);
        check_at("block unprotected again", mine + at, block, 420, at);
        fill_at(mine + at, block, 420, at);
    }
    return NULL;
}
static void protect_threads(void) {
    area = area_new(options.data_bytes);
    size_t half = options.data_bytes / 2;
    fill(area, half, 420);
    fill(area + half, half, 420);
    sweep();
    pthread_t first = thread_start(protector, area), second = thread_start(protector, area + half);
    sweep();
    thread_join(first);
    thread_join(second);
    sweep();
    check("first half", area, half, 420);
    check("second half", area + half, half, 420);
}

static void many_mappings(void) {
    prepare(430);
    /* Every other page read-only: thousands of mappings, then all one again. */
    size_t most = options.data_bytes < 40 * MIB ? options.data_bytes : 40 * MIB;
    for (size_t at = 0; at < most; at += 2 * PAGE_BYTES) EXPECT(mprotect(area + at, PAGE_BYTES, PROT_READ) == 0);
    sweep();
    check("in many mappings", area, options.data_bytes, 430);
    EXPECT(mprotect(area, options.data_bytes, PROT_READ | PROT_WRITE) == 0);
    sweep();
    check("in one mapping again", area, options.data_bytes, 430);
}

static void locked(void) {
    prepare(440);
    size_t bytes = 6 * MIB;
    if (mlock(area + 4 * MIB, bytes) != 0) {
        if (errno == ENOMEM || errno == EPERM || errno == EAGAIN) skip("mlock is not permitted here");
        fail(true, "mlock");
    }
    sweep();
    unsigned char present[6 * MIB / PAGE_BYTES];
    EXPECT(mincore(area + 4 * MIB, bytes, present) == 0);
    for (size_t i = 0; i < sizeof present; i++)
        if ((present[i] & 1) == 0) fail(false, "locked page %zu is away", i);
    check("with a locked part", area, options.data_bytes, 440);
    fill_at(area + 4 * MIB, bytes, 441, 4 * MIB);
    EXPECT(munlock(area + 4 * MIB, bytes) == 0);
    sweep();
    check_at("unlocked", area + 4 * MIB, bytes, 441, 4 * MIB);
    check_at("the rest", area + 10 * MIB, options.data_bytes - 10 * MIB, 440, 10 * MIB);
}

/* Pins most of what --local allows, and leaves it so: --mib says how much. For the tests of the budget. */
static void locked_most(void) {
    area = area_new(options.data_bytes);
    fill(area, options.data_bytes, 450);
    if (mlock(area, options.data_bytes) != 0) skip("mlock is not permitted here");
    for (int round = 0; round < 3; round++) sweep();
    check("locked", area, options.data_bytes, 450);
}

/* Everything locked at once, Loam's own memory in the program with it; what comes afterwards is not. */
static void locked_all(void) {
    unsigned char *before = area_new(2 * MIB);
    fill(before, 2 * MIB, 470);
    if (mlockall(MCL_CURRENT) != 0) skip("mlockall is not permitted here");
    for (int round = 0; round < 2; round++) {
        prepare(471);
        sweep();
        check("mapped since it was locked", area, options.data_bytes, 471);
        check("locked", before, 2 * MIB, 470);
        EXPECT(munmap(area, options.data_bytes) == 0);
        /* And again while pages are being taken away: of this, only what is here by then is little. */
        if (round == 0) EXPECT(munlockall() == 0);
    }
    prepare(472);
    sweep();
    check("after it was unlocked", area, options.data_bytes, 472);
    check("not locked any more", before, 2 * MIB, 470);
}

/* Guarded memory is lost, wherever it is, and raises SIGSEGV until the guard is taken away. */
static void guard(void) {
    enum { INSTALL = 102, REMOVE = 103 };
    prepare(480);
    size_t quarter = options.data_bytes / 4;
    if (madvise(area + quarter, quarter, INSTALL) != 0) {
        if (errno == EINVAL) skip("this kernel has no MADV_GUARD_INSTALL");
        fail(true, "MADV_GUARD_INSTALL");
    }
    expect_segv("a read of a guarded page", (volatile uint64_t *)(area + quarter), false);
    expect_segv("a write to a guarded page", (volatile uint64_t *)(area + 2 * quarter - PAGE_BYTES), true);
    sweep();
    check_at("below the guarded part", area, quarter, 480, 0);
    check_at("above the guarded part", area + 2 * quarter, 2 * quarter, 480, 2 * quarter);
    expect_segv("a read of a page that was guarded long ago", (volatile uint64_t *)(area + quarter), false);
    EXPECT(madvise(area + quarter, quarter, REMOVE) == 0);
    check_zero("guarded once", area + quarter, quarter);
    fill_at(area + quarter, quarter, 481, quarter);
    sweep();
    check_at("written since", area + quarter, quarter, 481, quarter);

    /* One page of fresh memory, which the pages before it are filled up to. */
    unsigned char *fresh = area_new(4 * MIB);
    for (size_t at = 0; at < 4 * MIB; at += 512 * PAGE_BYTES) {
        EXPECT(madvise(fresh + at + 20 * PAGE_BYTES, PAGE_BYTES, INSTALL) == 0);
        fill(fresh + at, 20 * PAGE_BYTES, 482);
        expect_segv("a write to a guarded page in fresh memory", (volatile uint64_t *)(fresh + at + 20 * PAGE_BYTES), true);
    }
    check("beside guarded pages", fresh, 20 * PAGE_BYTES, 482);
}

static void advice(void) {
    prepare(460);
    static const int all[] = {MADV_HUGEPAGE, MADV_SEQUENTIAL, MADV_RANDOM, MADV_WILLNEED, MADV_COLD, MADV_PAGEOUT,
                              MADV_NOHUGEPAGE, MADV_NORMAL, MADV_DONTDUMP, MADV_DODUMP, MADV_POPULATE_READ,
                              MADV_POPULATE_WRITE};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        /* Some are refused by some kernels; none may change a byte. POPULATE of everything would only break the limit. */
        bool populate = all[i] == MADV_POPULATE_READ || all[i] == MADV_POPULATE_WRITE;
        (void)madvise(area + 4 * MIB, populate ? 4 * MIB : options.data_bytes - 4 * MIB, all[i]);
        sweep();
        check("after an advice", area, options.data_bytes, 460);
    }
}

const struct trap traps_protect[] = {
    {"mprotect_read", read_only, "read-only and back; writes raise SIGSEGV meanwhile", 0},
    {"mprotect_none", none, "no access and back; reads raise SIGSEGV meanwhile", 0},
    {"mprotect_execute", executable, "memory that is written and executed", 0},
    {"mprotect_threads", protect_threads, "two threads protect and unprotect blocks", 0},
    {"many_mappings", many_mappings, "thousands of mappings by protection", 0},
    {"mlock", locked, "locked pages stay, unlocked ones may leave", 0},
    {"mlock_most", locked_most, "half of --mib locked to the end", 0},
    {"mlockall_current", locked_all, "everything locked, and unlocked again", 0},
    {"guard", guard, "MADV_GUARD_INSTALL, and away again", 0},
    {"advice", advice, "advice that may not change contents", 0},
    {NULL, NULL, NULL, 0},
};
