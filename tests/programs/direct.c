// Programs for direct regions: each says what is right, and ends with status 1 where something is not.
//
//   direct snapshot FORKS   a thread counts up in memory of several chunks while another forks; each child has the memory of one moment
//   direct hold             fills memory, says "ready", and looks at it again for each line that it reads
//   direct raw              a child made behind libc's back dies at its first touch, and what it allocates itself is its own
//   direct handlers         handlers for forks that write to memory and allocate
//   direct exec             fork, vfork, posix_spawn and system, and programs in them
//   direct daemon           its parent ends at once; the child has all
//   direct advice           madvise as for private memory
//   direct tree DEPTH       each process forks a child, all write, none sees the others
//   direct fill MIB BYTE    fills so much with that byte, frees half of it and ends
//   direct stack            a thread forks whose stack is allocated
//   direct orphans COUNT    as many parents are killed while they fork: says r for each child that has all, W for one that has not
//   direct clean MIB        what it gets anew is zeros or its own
//   direct fork MIB         one fork, and how long it took (to stderr)
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MIB = 1 << 20, CELLS = 24 };

static void must(int right, const char *what) {
    if (right) return;
    fprintf(stderr, "WRONG: %s\n", what);
    exit(1);
}

// The compiler must not leave out what nobody looks at.
static void written(void *at) { __asm__ volatile("" : : "r"(at) : "memory"); }

static void fill(unsigned char *at, size_t bytes, unsigned tag) {
    for (size_t i = 0; i < bytes; i += 64) at[i] = (unsigned char)(tag + i / 4096 * 7 + i / 64);
}

static int is_filled(const unsigned char *at, size_t bytes, unsigned tag) {
    for (size_t i = 0; i < bytes; i += 64)
        if (at[i] != (unsigned char)(tag + i / 4096 * 7 + i / 64)) return 0;
    return 1;
}

static void ended_well(pid_t pid, const char *what) {
    int status;
    must(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 42, what);
}

static unsigned char *cells;
static atomic_int stop;
static _Atomic uint64_t rounds;
static volatile uint64_t *cell(int n) { return (volatile uint64_t *)(cells + (size_t)n * MIB); }

static void *counts(void *unused) {
    (void)unused;
    for (uint64_t round = 1; !stop; round++) {
        for (int n = 0; n < CELLS; n++) *cell(n) = round;
        rounds = round;
    }
    return NULL;
}

static void snapshot(int forks) {
    cells = malloc((size_t)CELLS * MIB);
    memset(cells, 0, (size_t)CELLS * MIB);
    pthread_t thread;
    must(pthread_create(&thread, NULL, counts, NULL) == 0, "a thread");
    for (int n = 0; n < forks; n++) {
        uint64_t before = rounds;
        while (rounds < before + 3) usleep(100);
        pid_t pid = fork();
        if (pid == 0) {
            for (int look = 0; look < 3; look++) {
                uint64_t first = *cell(0), last = *cell(0);
                // Cells are written in order: of one moment, they fall once at most, by one.
                for (int c = 1; c < CELLS; c++) {
                    uint64_t here = *cell(c);
                    must(here == last || here + 1 == last, "a snapshot");
                    last = here;
                }
                must(first - last <= 1, "a snapshot of one moment");
                must(rounds == last || rounds == last - 1 || rounds == first, "private memory of the same moment");
                usleep(500);
            }
            for (int c = 0; c < CELLS; c++) {
                must(cell(c)[8] == (uint64_t)n, "what the parent has written once");
                cell(c)[8] = 1 << 20;
            }
            _exit(42);
        }
        ended_well(pid, "a child");
        for (int c = 0; c < CELLS; c++) {
            must(cell(c)[8] == (uint64_t)n, "the child's writes are its own");
            cell(c)[8] = (uint64_t)n + 1;
        }
    }
    stop = 1;
    pthread_join(thread, NULL);
    puts("snapshots right");
}

static void hold(void) {
    size_t bytes = 24 * MIB;
    unsigned char *at = malloc(bytes);
    fill(at, bytes, 1);
    puts("ready");
    fflush(stdout);
    char line[64];
    for (unsigned tag = 1; fgets(line, sizeof line, stdin); tag++) {
        must(is_filled(at, bytes, tag), "held memory");
        fill(at, bytes, tag + 1);
        unsigned char *more = calloc(1, 8 * MIB);
        for (size_t i = 0; i < 8 * MIB; i++) must(more[i] == 0, "zeros");
        memset(more, 9, 8 * MIB);
        free(more);
        pid_t pid = fork();
        if (pid == 0) {
            must(is_filled(at, bytes, tag + 1), "a child's memory");
            _exit(42);
        }
        ended_well(pid, "a child");
        puts("as it was");
        fflush(stdout);
    }
}

static void raw(void) {
    unsigned char *at = malloc(4 * MIB);
    fill(at, 4 * MIB, 3);
    for (int writes = 0; writes < 2; writes++) {
        pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (pid == 0) {
            if (writes) *(volatile unsigned char *)at = 99;
            else *(volatile unsigned char *)at;
            _exit(42);
        }
        int status;
        must(pid > 0 && waitpid(pid, &status, 0) == pid, "a child behind libc's back");
        must(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "it ends by SIGSEGV");
    }
    // All of the region's chunks are gaps in such a child: nothing of its own may come to lie there.
    unsigned char *more = malloc(48 * MIB);
    fill(more, 48 * MIB, 4);
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        for (size_t mib = 1; mib < 40; mib++) {
            unsigned char *own = malloc(mib * MIB);
            must(own + mib * MIB <= at || own >= more + 48 * MIB, "it lies elsewhere");
            fill(own, mib * MIB, 6);
            own = realloc(own, 2 * mib * MIB);
            must(is_filled(own, mib * MIB, 6), "a raw child's own memory");
            free(own);
        }
        _exit(42);
    }
    ended_well(pid, "a raw child that allocates");
    must(is_filled(at, 4 * MIB, 3) && is_filled(more, 48 * MIB, 4), "the parent's memory");
    free(at);
    free(more);
    puts("raw right");
}

static void execs(char *self) {
    unsigned char *at = malloc(16 * MIB);
    fill(at, 16 * MIB, 5);
    char *arguments[] = {self, "clean", "8", NULL};
    for (volatile int how = 0; how < 3; how++) {
        pid_t pid = -1;
        int status;
        if (how == 2) {
            must(posix_spawn(&pid, self, NULL, NULL, arguments, environ) == 0, "posix_spawn");
        } else if ((pid = how ? vfork() : fork()) == 0) {
            execv(self, arguments);
            _exit(1);
        }
        must(waitpid(pid, &status, 0) == pid && status == 0, "a program");
    }
    must(system("exit 3") >> 8 == 3, "system");
    must(is_filled(at, 16 * MIB, 5), "the parent's memory");
    puts("exec right");
}

static void daemonlike(void) {
    unsigned char *at = malloc(32 * MIB);
    fill(at, 32 * MIB, 7);
    fflush(stdout);
    if (fork() > 0) _exit(0);
    must(is_filled(at, 32 * MIB, 7), "the daemon's memory");
    setsid();
    if (fork() > 0) _exit(0);
    usleep(200 * 1000);
    must(is_filled(at, 32 * MIB, 7), "the daemon's child's memory");
    fill(at, 32 * MIB, 8);
    must(is_filled(at, 32 * MIB, 8), "what it has written");
    puts("daemon right");
    fflush(stdout);
}

static void advice(void) {
    unsigned char *at = memalign(4096, 6 * MIB);
    fill(at, 6 * MIB, 1);
    must(madvise(at + MIB, 2 * MIB, MADV_DONTNEED) == 0, "MADV_DONTNEED");
    for (size_t i = MIB; i < 3 * MIB; i++) must(at[i] == 0, "zeros");
    must(is_filled(at, MIB, 1), "in front of it");
    for (int how = 0; how < 2; how++) {
        fill(at, 6 * MIB, 1);
        // Right to write is not asked for.
        must(mprotect(at + MIB, 2 * MIB, how ? PROT_NONE : PROT_READ) == 0, "mprotect");
        must(madvise(at + MIB, 2 * MIB, how ? MADV_REMOVE : MADV_FREE) == 0, "MADV_FREE and MADV_REMOVE");
        must(mprotect(at + MIB, 2 * MIB, PROT_READ | PROT_WRITE) == 0, "mprotect");
        for (size_t i = MIB; i < 3 * MIB; i++) must(at[i] == 0, "zeros");
        must(is_filled(at, MIB, 1), "in front of it");
    }
    must(madvise(at, 6 * MIB, MADV_DONTFORK) == 0 && madvise(at, 6 * MIB, MADV_DOFORK) == 0, "MADV_DOFORK");
    fill(at, 6 * MIB, 2);
    pid_t pid = fork();
    if (pid == 0) {
        must(is_filled(at, 6 * MIB, 2), "a child's memory");
        fill(at, 6 * MIB, 3);
        _exit(42);
    }
    ended_well(pid, "a child");
    must(is_filled(at, 6 * MIB, 2), "the child has written to its own");
    free(at);
    puts("advice right");
}

// Handlers that were registered after the shim's: they run before its own, and in the parent and the child after them.
static unsigned char *of_handlers;

static void before_fork(void) { of_handlers[0]++; }

static void after_fork(void) {
    of_handlers[4 * MIB]++;
    unsigned char *more = malloc(12 * MIB);
    memset(more, 1, 12 * MIB);
    free(more);
}

// And some that were registered before the shim's, as a library's are that the program starts with: its own run between these.
static int early, protects;
static void *kept;

static void early_before(void) {
    if (early) kept = malloc(MIB);
}

static void early_parent(void) {
    if (!early) return;
    memset(kept, 1, MIB);
    free(kept);
    if (protects) of_handlers[6 * MIB]++; // it waits until the child has its copy
}

static void early_child(void) {
    if (!early) return;
    // Where the region's chunks were is a gap; nothing may come to lie there.
    unsigned char *own = malloc(4 * MIB);
    memset(own, 1, 4 * MIB);
    memset(kept, 1, MIB);
    free(kept);
    free(own);
}

static void register_early(int count, char **arguments, char **environment) {
    (void)count, (void)arguments, (void)environment;
    pthread_atfork(early_before, early_parent, early_child);
}

__attribute__((section(".preinit_array"), used)) static void (*const at_first)(int, char **, char **) = register_early;

static void *nothing(void *unused) {
    while (!stop) usleep(1000);
    return unused;
}

static void handlers(void) {
    of_handlers = malloc(8 * MIB);
    memset(of_handlers, 0, 8 * MIB);
    must(pthread_atfork(before_fork, after_fork, after_fork) == 0, "handlers");
    early = 1;
    pthread_t thread;
    for (int n = 1; n <= 6; n++) {
        if (n == 4) { // from here on it is write-protected
            must(pthread_create(&thread, NULL, nothing, NULL) == 0, "a thread");
            protects = 1;
        }
        unsigned char writes = of_handlers[6 * MIB];
        pid_t pid = fork();
        if (pid == 0) {
            must(of_handlers[0] == n && of_handlers[4 * MIB] == n, "a child's handlers");
            must(of_handlers[6 * MIB] == writes, "what the parent's handler writes is the parent's");
            of_handlers[0] = 99;
            _exit(42);
        }
        ended_well(pid, "a child");
        must(of_handlers[0] == n && of_handlers[4 * MIB] == n, "the parent's handlers");
        must(of_handlers[6 * MIB] == writes + protects, "the parent's early handler");
    }
    stop = 1;
    pthread_join(thread, NULL);
    puts("handlers right");
}

static void tree(int depth) {
    size_t bytes = 5 * MIB + 4096;
    unsigned char *at = malloc(bytes);
    fill(at, bytes, 100);
    for (int level = 0; level < depth; level++) {
        pid_t pid = fork();
        if (pid > 0) {
            fill(at, bytes, 200 + (unsigned)level); // while the child looks
            ended_well(pid, "a child");
            must(is_filled(at, bytes, 200 + (unsigned)level), "the parent's memory");
            if (level > 0) _exit(42);
            puts("tree right");
            return;
        }
        must(pid == 0 && is_filled(at, bytes, 100 + (unsigned)level), "the child's memory");
        fill(at, bytes, 101 + (unsigned)level);
        free(malloc(3 * MIB));
    }
    _exit(42);
}

static void *forks(void *unused) {
    (void)unused;
    return (void *)(intptr_t)fork();
}

static void stack(void) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, memalign(4096, MIB), MIB);
    pthread_t thread;
    must(pthread_create(&thread, &attributes, forks, NULL) == 0, "a thread");
    pthread_join(thread, NULL);
    puts("went on");
}

// Parents that are killed while they fork: their children have all of the memory, or end.
static void orphans(int count, int out) {
    size_t bytes = 48 * MIB;
    for (int n = 0; n < count; n++) {
        int forks[2];
        char byte;
        must(pipe(forks) == 0, "a pipe");
        pid_t parent = fork();
        if (parent == 0) {
            unsigned char *at = malloc(bytes);
            fill(at, bytes, (unsigned)n);
            if (write(forks[1], "f", 1) != 1) _exit(1);
            if (fork() == 0) {
                char said = is_filled(at, bytes, (unsigned)n) ? 'r' : 'W';
                if (write(out, &said, 1) != 1) _exit(1);
                _exit(0);
            }
            pause();
        }
        must(read(forks[0], &byte, 1) == 1, "it forks");
        usleep(n + 1 < count ? (useconds_t)(n * 400) : 3000000); // the last has the time that it takes
        kill(parent, SIGKILL);
        waitpid(parent, NULL, 0);
        // What it had is another's soon.
        for (int again = 0; again < 20; again++) {
            unsigned char *other = malloc(bytes);
            memset(other, 0xee, bytes);
            written(other);
            free(other);
        }
        close(forks[0]);
        close(forks[1]);
    }
    if (write(out, "e", 1) != 1) _exit(1);
}

static void clean(size_t bytes) {
    unsigned char *at = malloc(bytes);
    for (size_t i = 0; i < bytes; i++) must(at[i] == 0, "of another process");
    memset(at, 0x5a, bytes);
    written(at);
    free(at);
    at = calloc(bytes / 4096, 4096);
    for (size_t i = 0; i < bytes; i++) must(at[i] == 0, "zeros");
    free(at);
}

int main(int count, char **arguments) {
    const char *what = count > 1 ? arguments[1] : "";
    long number = count > 2 ? atol(arguments[2]) : 0;
    if (strcmp(what, "snapshot") == 0) snapshot((int)number);
    else if (strcmp(what, "hold") == 0) hold();
    else if (strcmp(what, "raw") == 0) raw();
    else if (strcmp(what, "exec") == 0) execs(arguments[0]);
    else if (strcmp(what, "daemon") == 0) daemonlike();
    else if (strcmp(what, "advice") == 0) advice();
    else if (strcmp(what, "handlers") == 0) handlers();
    else if (strcmp(what, "tree") == 0) tree((int)number);
    else if (strcmp(what, "stack") == 0) stack();
    else if (strcmp(what, "orphans") == 0) orphans((int)number, 1);
    else if (strcmp(what, "clean") == 0) {
        clean((size_t)number * MIB);
    } else if (strcmp(what, "fill") == 0) {
        unsigned char *halves[2];
        for (int half = 0; half < 2; half++) {
            halves[half] = malloc((size_t)number * MIB / 2);
            memset(halves[half], atoi(arguments[3]), (size_t)number * MIB / 2);
            written(halves[half]);
        }
        free(halves[0]);
    } else if (strcmp(what, "fork") == 0) {
        unsigned char *at = malloc((size_t)number * MIB);
        memset(at, 1, (size_t)number * MIB);
        struct timespec from, to;
        clock_gettime(CLOCK_MONOTONIC, &from);
        pid_t pid = fork();
        if (pid == 0) _exit(42);
        clock_gettime(CLOCK_MONOTONIC, &to);
        ended_well(pid, "a child");
        must(((volatile unsigned char *)at)[MIB] == 1, "its memory");
        fprintf(stderr, "fork of %ld MiB: %.2f ms\n", number,
                (double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) / 1e6);
    } else return 2;
    return 0;
}
