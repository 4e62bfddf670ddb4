// The edges of the allocator's interface: sizes, alignments, overflows, errno, what realloc keeps, threads that hand blocks on. What it prints
// is the same with every allocator that keeps the standard.
//
//   heapedges             all of it
//   heapedges FAULT       one misuse, which must end the program: twice, middle, realloc, stale
//   heapedges loop        a large buffer is allocated, filled and freed a thousand times, beside 64 MiB that stay
//   heapedges freed       128 MiB are filled and freed; then it says so and waits for its end
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

static void say(const char *what, int right) {
    printf("%s: %s\n", what, right ? "right" : "WRONG");
    fflush(stdout);
}

static int all(const unsigned char *at, size_t bytes, int value) {
    for (size_t i = 0; i < bytes; i++)
        if (at[i] != value) return 0;
    return 1;
}

// Sizes that the compiler must not know.
static volatile size_t huge = SIZE_MAX, half = PTRDIFF_MAX, zero = 0;

static void refusals(void) {
    void *kept = malloc(8 * MIB), *into = (void *)&kept;
    memset(kept, 7, 8 * MIB);
    errno = 0;
    say("malloc of everything", malloc(huge) == NULL && errno == ENOMEM);
    errno = 0;
    say("malloc above PTRDIFF_MAX", malloc(half + 1) == NULL && errno == ENOMEM);
    errno = 0;
    say("calloc that overflows", calloc(huge / 2, 4) == NULL && errno == ENOMEM);
    errno = 0;
    say("calloc of zero elements is freed", (free(calloc(zero, 8)), errno == 0));
    say("reallocarray that overflows", reallocarray(kept, huge / 2, 4) == NULL && errno == ENOMEM);
    errno = 0;
    say("realloc above PTRDIFF_MAX", realloc(kept, half + 1) == NULL && errno == ENOMEM);
    say("and the block is as it was", all(kept, 8 * MIB, 7));
    errno = 0;
    say("posix_memalign of an odd alignment", posix_memalign(&into, 24, 8 * MIB) == EINVAL && errno == 0);
    say("posix_memalign of everything", posix_memalign(&into, 4096, huge - 8192) == ENOMEM);
    say("and the place is as it was", into == (void *)&kept);
    free(kept);
    free(NULL);
}

static void alignments(void) {
    int right = 1;
    for (size_t align = 16; align <= (size_t)64 * MIB; align *= 4)
        for (size_t bytes = 100; bytes < (size_t)16 * MIB; bytes *= 40) {
            void *a = memalign(align, bytes), *b = aligned_alloc(align, bytes - bytes % align + align), *c = NULL;
            right &= posix_memalign(&c, align, bytes) == 0;
            right &= a && b && c && (((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) & (align - 1)) == 0;
            memset(a, 1, bytes);
            memset(c, 2, bytes);
            right &= all(a, bytes, 1);
            free(a), free(b), free(c);
        }
    say("alignments to 64 MiB", right);
    void *v = valloc(3 * MIB + 1), *p = pvalloc(3 * MIB + 1);
    say("valloc, pvalloc", v && p && ((uintptr_t)v | (uintptr_t)p) % 4096 == 0 && malloc_usable_size(p) >= 3 * MIB + 4096);
    free(v), free(p);
}

// From small to large and back, over every border between two allocators.
static void sizes(void) {
    static const size_t sizes[] = {10, 5000, 3 * MIB, 100, 12 * MIB, 13 * MIB, 5 * MIB, 262143, 262144, 262145, 1, 2 * MIB, 0};
    unsigned char *at = NULL;
    size_t old = 0;
    int right = 1;
    for (int i = 0; i < (int)(sizeof sizes / sizeof *sizes); i++) {
        at = realloc(at, sizes[i]);
        size_t kept = old < sizes[i] ? old : sizes[i];
        right &= all(at, kept, i);
        right &= sizes[i] == 0 || malloc_usable_size(at) >= sizes[i];
        if (sizes[i]) memset(at, i + 1, sizes[i]);
        old = sizes[i];
    }
    say("realloc keeps what there was", right && at == NULL);
}

static void zeros(void) {
    int right = 1;
    for (int i = 0; i < 30; i++) {
        unsigned char *a = calloc(1000 + i, 7000), *b = malloc(6 * MIB);
        right &= all(a, (size_t)(1000 + i) * 7000, 0);
        memset(a, 255, (size_t)(1000 + i) * 7000);
        memset(b, 255, 6 * MIB);
        free(i % 2 ? a : b);
        free(i % 2 ? b : a);
    }
    say("calloc after free is zero", right);
}

static void forks(void) {
    unsigned char *at = malloc(20 * MIB), *other = calloc(1, 10 * MIB);
    memset(at, 3, 20 * MIB);
    for (int i = 0; i < 3; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            int right = all(at, 20 * MIB, 3) && all(other, 10 * MIB, 0);
            memset(at, 9, 20 * MIB);
            free(other);
            unsigned char *more = calloc(1, 15 * MIB);
            right &= all(more, 15 * MIB, 0) && all(at, 20 * MIB, 9);
            free(at);
            _exit(right ? 0 : 1);
        }
        memset(other, 0, 10 * MIB);
        int status;
        say("a child has its own", waitpid(pid, &status, 0) == pid && status == 0);
    }
    say("and the parent what it had", all(at, 20 * MIB, 3) && all(other, 10 * MIB, 0));
    free(at), free(other);
}

static void sized(void) {
    void (*free_sized)(void *, size_t) = (void (*)(void *, size_t))dlsym(RTLD_DEFAULT, "free_sized");
    void *at = malloc(4 * MIB);
    if (free_sized) free_sized(at, 4 * MIB);
    else free(at);
    say("free_sized", 1);
}

static void loop(void) {
    unsigned char *kept = malloc(64 * MIB);
    memset(kept, 5, 64 * MIB);
    int right = 1;
    for (int i = 0; i < 1000; i++) {
        unsigned char *volatile at = malloc(2 * MIB);
        for (int n = 0; n < 2 * MIB; n += 4096) at[n] = (unsigned char)i;
        right &= at[MIB] == (unsigned char)i;
        free(at);
    }
    say("a thousand buffers", right && all(kept, 64 * MIB, 5));
    free(kept);
}

static void freed(void) {
    void *blocks[16];
    for (int i = 0; i < 16; i++) blocks[i] = memset(malloc(8 * MIB), i + 1, 8 * MIB);
    puts("filled");
    sleep(4);
    for (int i = 0; i < 16; i++) free(blocks[i]);
    puts("freed");
    pause();
}

int main(int count, char **arguments) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char *fault = count > 1 ? arguments[1] : "";
    if (!*fault) {
        refusals(), alignments(), sizes(), zeros(), forks(), sized();
        return 0;
    }
    if (!strcmp(fault, "loop")) return loop(), 0;
    if (!strcmp(fault, "freed")) return freed(), 0;
    // Whether the compiler sees what is wrong is not what is tested.
    volatile uintptr_t at = (uintptr_t)malloc(5 * MIB);
    *(char *)at = 1;
    if (!strcmp(fault, "twice")) free((void *)at), free((void *)at);
    else if (!strcmp(fault, "middle")) free((void *)(at + MIB));
    else if (!strcmp(fault, "stale")) free((void *)at), at = (uintptr_t)realloc((void *)at, 9 * MIB);
    else if (!strcmp(fault, "realloc")) at = (uintptr_t)realloc((void *)(at + 16), 9 * MIB);
    puts("went on");
    return 0;
}
