// Allocates, grows, shrinks, aligns and frees from several threads, forks in the midst of it, and checks every content.
//
//   heap THREADS OPERATIONS KIB_MAX [FORKS]   OPERATIONS of each thread; every so often, FORKS times in all of its operations, a thread forks a child
//                                             that checks what it has inherited, goes on for a while and ends
//
// What it prints is a function of its arguments: the order of threads does not show.
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLOTS = 12, STEP = 512, MAILBOXES = 16 };

struct block {
    unsigned char *at;
    size_t bytes;
    uint64_t tag;
};

struct worker {
    pthread_t thread;
    uint64_t random, seed, sum;
    struct block slots[SLOTS];
};

static long operations, fork_every;
static size_t bytes_max;
// Blocks that one thread leaves and another takes and frees.
static _Atomic(struct block *) mailboxes[MAILBOXES];

static void fail(const char *what, const struct block *block, size_t at) {
    fprintf(stderr, "WRONG: %s, block %p of %zu, at %zu, errno %d\n", what, (void *)block->at, block->bytes, at, errno);
    abort();
}

static uint64_t next(uint64_t *x) {
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

static uint64_t word(const struct block *b, size_t at) { return (b->tag + at) * 0x9e3779b97f4a7c15u; }

// Its last byte is not in a word.
static int has_last(const struct block *b) { return b->bytes % STEP != 8; }

// A word every STEP bytes, and the last byte.
static void fill(struct block *b) {
    for (size_t at = 0; at + 8 <= b->bytes; at += STEP) {
        uint64_t w = word(b, at);
        memcpy(b->at + at, &w, 8);
    }
    if (has_last(b)) b->at[b->bytes - 1] = (unsigned char)b->tag;
}

static void check(const struct block *b, size_t bytes, int whole) {
    for (size_t at = 0; at + 8 <= bytes; at += STEP) {
        uint64_t w = word(b, at);
        if (memcmp(b->at + at, &w, 8) != 0) fail("contents", b, at);
    }
    if (whole && has_last(b) && b->at[b->bytes - 1] != (unsigned char)b->tag) fail("last byte", b, b->bytes - 1);
}

static void check_zero(const struct block *b) {
    for (size_t at = 0; at < b->bytes; at += at + 8 < b->bytes ? 8 : 1)
        if (b->at[at] != 0) fail("calloc is not zero", b, at);
}

// Mostly large, of every order of magnitude; some small ones, that the region does not serve.
static size_t size(struct worker *w) {
    uint64_t r = next(&w->random);
    size_t most = bytes_max >> (r % 5 * 2);
    return 1 + (r >> 8) % most;
}

static void allocate(struct worker *w, struct block *b) {
    uint64_t r = next(&w->random);
    b->bytes = size(w);
    b->tag = r;
    errno = 0;
    size_t align = 16;
    switch (r % 8) {
    case 0:
    case 1:
        b->at = calloc(1 + r % 3, b->bytes / (1 + r % 3) + 1);
        if (b->at) check_zero(b);
        break;
    case 2:
        align = (size_t)64 << (r >> 8) % 16; // to 2 MiB
        b->at = memalign(align, b->bytes);
        break;
    case 3:
        align = (size_t)4096 << (r >> 8) % 8;
        void *at = NULL;
        if (posix_memalign(&at, align, b->bytes) != 0) fail("posix_memalign", b, 0);
        b->at = at;
        break;
    case 4:
        align = 4096;
        b->at = aligned_alloc(align, (b->bytes + align - 1) / align * align);
        break;
    default:
        b->at = malloc(b->bytes);
    }
    if (b->at == NULL) fail("no memory", b, 0);
    if ((uintptr_t)b->at % align != 0) fail("alignment", b, 0);
    if (malloc_usable_size(b->at) < b->bytes) fail("usable size", b, 0);
    fill(b);
}

static void drop(struct block *b) {
    check(b, b->bytes, 1);
    errno = 77;
    free(b->at);
    if (errno != 77) fail("free changed errno", b, 0);
    b->at = NULL;
}

static void change(struct worker *w, struct block *b) {
    uint64_t r = next(&w->random);
    size_t bytes = r % 3 == 0 ? b->bytes + b->bytes / 2 + 1 : size(w);
    if (bytes > 2 * bytes_max) bytes = bytes_max;
    unsigned char *at = r % 2 ? realloc(b->at, bytes) : reallocarray(b->at, bytes, 1);
    if (at == NULL) fail("realloc", b, 0);
    b->at = at;
    size_t kept = b->bytes < bytes ? b->bytes : bytes;
    check(b, kept, 0);
    b->bytes = bytes;
    fill(b);
}

static void mail(struct worker *w, struct block *b) {
    struct block *letter = malloc(sizeof *letter);
    *letter = *b;
    b->at = NULL;
    struct block *other = atomic_exchange(&mailboxes[next(&w->random) % MAILBOXES], letter);
    if (other != NULL) {
        drop(other);
        free(other);
    }
}

static void operate(struct worker *w) {
    struct block *b = &w->slots[next(&w->random) % SLOTS];
    if (b->at == NULL) {
        allocate(w, b);
    } else {
        switch (next(&w->random) % 8) {
        case 0:
        case 1:
            change(w, b);
            break;
        case 2:
            mail(w, b);
            break;
        case 3:
            check(b, b->bytes, 1);
            break;
        default:
            drop(b);
        }
    }
    w->sum = w->sum * 31 + (b->at ? b->bytes : 0);
}

static void child(struct worker *w) {
    for (int i = 0; i < SLOTS; i++)
        if (w->slots[i].at) check(&w->slots[i], w->slots[i].bytes, 1);
    for (int i = 0; i < 20; i++) operate(w);
    for (int i = 0; i < SLOTS; i++)
        if (w->slots[i].at) drop(&w->slots[i]);
    _exit(42);
}

static void *work(void *argument) {
    struct worker *w = argument;
    for (long i = 0; i < operations; i++) {
        operate(w);
        if (fork_every > 0 && i % fork_every == fork_every / 2) {
            pid_t pid = fork();
            if (pid == 0) child(w);
            int status = 0;
            if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 42) {
                fprintf(stderr, "WRONG: a child ended with %x\n", status);
                abort();
            }
        }
    }
    return NULL;
}

int main(int count, char **arguments) {
    if (count < 4) return 2;
    int threads = atoi(arguments[1]);
    operations = atol(arguments[2]);
    bytes_max = (size_t)atol(arguments[3]) << 10;
    long forks = count > 4 ? atol(arguments[4]) : 0;
    fork_every = forks > 0 ? operations / forks : 0;
    struct worker *workers = calloc((size_t)threads, sizeof *workers);
    for (int i = 0; i < threads; i++) {
        workers[i].random = workers[i].seed = 0x1234567 + (uint64_t)i * 7919;
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) return 3;
    }
    for (int i = 0; i < threads; i++) {
        pthread_join(workers[i].thread, NULL);
        printf("thread %d: %016llx\n", i, (unsigned long long)workers[i].sum);
    }
    for (int i = 0; i < threads; i++)
        for (int n = 0; n < SLOTS; n++)
            if (workers[i].slots[n].at) drop(&workers[i].slots[n]);
    for (int i = 0; i < MAILBOXES; i++) {
        struct block *letter = atomic_load(&mailboxes[i]);
        if (letter) {
            drop(letter);
            free(letter);
        }
    }
    puts("all contents right");
    return 0;
}
