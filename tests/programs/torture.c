// Everything that a program may do to its memory, at random, in many threads and processes at once; every content is known and checked.
//
//   torture SEED STEPS [THREADS] [PAGES]   STEPS of each thread, which has up to PAGES pages in up to 16 regions; children and what they execute have fewer.
//                                          The acts that WITHOUT names in the environment (`step` has their names) are left out.
//
// It says what is wrong and ends with 3, or says nothing and ends well. What threads do depends on SEED alone; how they meet does not.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8, REGIONS = 16, REGION_PAGES_MAX = 1024, CHILDREN_MAX = 3, DEPTH_MAX = 2 };

extern char **environ;

// Pages from `at` on; `tags[i]` is what page i has in its words, or 0 for zeros.
struct region {
    uint64_t *at;
    size_t pages;
    uint64_t *tags;
    // Children find it empty, or not at all.
    int wiped, hidden;
    // What was done to it last, by the first letters of the acts.
    char history[40];
};

struct self {
    uint64_t seed, state, next_tag;
    size_t pages_max, pages;
    unsigned steps;
    int depth, threads, regions_count, children_count;
    const char *last;
    struct region regions[REGIONS];
    // The one that an act is for.
    struct region *region;
    pid_t children[CHILDREN_MAX];
    int killed[CHILDREN_MAX];
};

static const char *program;
static __thread struct self *in_this_thread;

static uint64_t scramble(uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static uint64_t draw(struct self *self, uint64_t below) { return scramble(self->state++) % below; }

static _Noreturn void wrong(struct self *self, const char *format, ...) {
    char text[400];
    struct region *region = self->region;
    int n = snprintf(text, sizeof text, "WRONG (pid %d, seed %llu, after %s): ", getpid(), (unsigned long long)self->seed, self->last);
    if (region)
        n += snprintf(text + n, sizeof text - n, "%p, %zu pages (%s%s%s): ", (void *)region->at, region->pages, region->history,
                      region->wiped ? ", wiped" : "", region->hidden ? ", hidden" : "");
    va_list list;
    va_start(list, format);
    n += vsnprintf(text + n, sizeof text - n - 1, format, list);
    va_end(list);
    text[n++] = '\n';
    if (write(1, text, n) < 0)
        _exit(4);
    _exit(3);
}

// What must not fail: the kernel has no reason to refuse it.
static void check(struct self *self, int is_well, const char *what) {
    if (!is_well)
        wrong(self, "%s: %s", what, strerror(errno));
}

static uint64_t word_of(uint64_t tag, size_t at) { return tag ? scramble(tag ^ at << 48) | 1 : 0; }

static void put(struct region *region, size_t page, uint64_t tag) {
    uint64_t *words = region->at + page * WORDS;
    for (size_t at = 0; at < WORDS; at += 73)
        words[at] = word_of(tag, at);
    words[WORDS - 1] = word_of(tag, WORDS - 1);
    region->tags[page] = tag;
}

static void verify(struct self *self, struct region *region, size_t page) {
    uint64_t *words = region->at + page * WORDS;
    for (size_t at = 0; at < WORDS; at = at + 73 < WORDS || at == WORDS - 1 ? at + 73 : WORDS - 1)
        if (words[at] != word_of(region->tags[page], at))
            self->region = region, wrong(self, "page %zu, word %zu: %llx, expected %llx", page, at, (unsigned long long)words[at],
                                         (unsigned long long)word_of(region->tags[page], at));
}

static void verify_all(struct self *self) {
    for (int i = 0; i < self->regions_count; i++)
        for (size_t page = 0; page < self->regions[i].pages; page++)
            verify(self, &self->regions[i], page);
}

static struct region *any(struct self *self) {
    return self->regions_count ? &self->regions[draw(self, self->regions_count)] : 0;
}

// Some pages of a region, half of the time few.
static void span(struct self *self, struct region *region, size_t *first, size_t *pages) {
    *first = draw(self, region->pages);
    size_t most = region->pages - *first;
    *pages = 1 + draw(self, draw(self, 2) && most > 8 ? 8 : most);
}

static void forget(struct self *self, struct region *region) {
    self->pages -= region->pages;
    free(region->tags);
    *region = self->regions[--self->regions_count];
}

static void map_new(struct self *self) {
    size_t pages = 1 + draw(self, draw(self, 3) ? REGION_PAGES_MAX : 64);
    if (self->regions_count == REGIONS || self->pages + pages > self->pages_max)
        return;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | (draw(self, 4) ? 0 : MAP_NORESERVE);
    void *at = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    check(self, at != MAP_FAILED, "mmap");
    struct region region = {at, pages, calloc(REGION_PAGES_MAX * 2, 8), 0, 0, "+"};
    check(self, region.tags != 0, "calloc");
    self->regions[self->regions_count++] = region;
    self->pages += pages;
}

static void write_some(struct self *self, struct region *region) {
    size_t first, pages;
    span(self, region, &first, &pages);
    for (size_t page = first; page < first + pages; page++)
        put(region, page, ++self->next_tag);
}

static void read_some(struct self *self, struct region *region) {
    size_t first, pages;
    span(self, region, &first, &pages);
    for (size_t page = first; page < first + pages; page++)
        verify(self, region, page);
}

static void zeros(struct region *region, size_t first, size_t pages) { memset(region->tags + first, 0, pages * 8); }

static void discard(struct self *self, struct region *region) {
    size_t first, pages;
    span(self, region, &first, &pages);
    if (++self->next_tag % 2) {
        /* It reads as it was or as zeros now, until it is written. */
        check(self, !madvise(region->at + first * WORDS, pages * PAGE, MADV_FREE), "madvise");
        for (size_t page = first; page < first + pages; page++)
            put(region, page, ++self->next_tag);
        return;
    }
    check(self, !madvise(region->at + first * WORDS, pages * PAGE, MADV_DONTNEED), "madvise");
    zeros(region, first, pages);
}

static void map_over(struct self *self, struct region *region) {
    size_t first, pages;
    span(self, region, &first, &pages);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    void *at = mmap(region->at + first * WORDS, pages * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    check(self, at != MAP_FAILED, "mmap over");
    zeros(region, first, pages);
    // The kernel has forgotten what was said of it.
    if (region->wiped || region->hidden)
        check(self, !madvise(at, pages * PAGE, region->wiped ? MADV_WIPEONFORK : MADV_DONTFORK), "madvise over");
}

static void unmap(struct self *self, struct region *region) {
    size_t pages = 1 + draw(self, region->pages);
    if (pages == region->pages) {
        check(self, !munmap(region->at, pages * PAGE), "munmap");
        forget(self, region);
    } else if (draw(self, 2)) {
        check(self, !munmap(region->at, pages * PAGE), "munmap of the head");
        region->at += pages * WORDS;
        region->pages -= pages;
        memmove(region->tags, region->tags + pages, region->pages * 8);
        self->pages -= pages;
    } else {
        region->pages -= pages;
        check(self, !munmap(region->at + region->pages * WORDS, pages * PAGE), "munmap of the tail");
        self->pages -= pages;
    }
}

// It may be of several mappings by now, which the kernel resizes one by one or not at all.
static void resize(struct self *self, struct region *region) {
    size_t pages = 1 + draw(self, REGION_PAGES_MAX * 2);
    if (pages > region->pages && self->pages + pages - region->pages > self->pages_max)
        return;
    void *place = 0;
    if (draw(self, 3) == 0) {
        place = mmap(0, pages * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        check(self, place != MAP_FAILED, "mmap of a place");
    }
    int flags = MREMAP_MAYMOVE | (place ? MREMAP_FIXED : 0);
    void *at = mremap(region->at, region->pages * PAGE, pages * PAGE, flags, place);
    if (at == MAP_FAILED) {
        check(self, errno == EFAULT, "mremap");
        if (place)
            munmap(place, pages * PAGE);
        return;
    }
    if (place && at != place)
        wrong(self, "mremap went to %p, not %p", at, place);
    if (pages > region->pages)
        zeros(region, region->pages, pages - region->pages);
    self->pages += pages - region->pages;
    region->at = at;
    region->pages = pages;
}

static void protect(struct self *self, struct region *region) {
    size_t first, pages;
    span(self, region, &first, &pages);
    void *at = region->at + first * WORDS;
    int readable = draw(self, 2);
    check(self, !mprotect(at, pages * PAGE, readable ? PROT_READ : PROT_NONE), "mprotect");
    if (readable)
        for (size_t page = first; page < first + pages; page++)
            verify(self, region, page);
    check(self, !mprotect(at, pages * PAGE, PROT_READ | PROT_WRITE), "mprotect back");
}

static void keep_from_children(struct self *self, struct region *region) {
    int is_kept = region->wiped || region->hidden;
    int advice = !is_kept ? (draw(self, 2) ? MADV_WIPEONFORK : MADV_DONTFORK) : region->wiped ? MADV_KEEPONFORK : MADV_DOFORK;
    check(self, !madvise(region->at, region->pages * PAGE, advice), "madvise of a fork");
    region->wiped = advice == MADV_WIPEONFORK;
    region->hidden = advice == MADV_DONTFORK;
}

static void lock(struct self *self, struct region *region) {
    size_t first, pages;
    span(self, region, &first, &pages);
    pages = pages > 8 ? 8 : pages;
    void *at = region->at + first * WORDS;
    if (mlock(at, pages * PAGE))
        return; // the limit
    for (size_t page = first; page < first + pages; page++)
        verify(self, region, page);
    check(self, !munlock(at, pages * PAGE), "munlock");
}

// Out through the kernel, and back to another place.
static void by_a_file(struct self *self, struct region *region) {
    struct region *other = any(self);
    size_t first, pages, there;
    span(self, region, &first, &pages);
    pages = pages > other->pages ? other->pages : pages;
    there = draw(self, other->pages - pages + 1);
    int file = memfd_create("torture", MFD_CLOEXEC);
    check(self, file >= 0, "memfd_create");
    struct iovec out[2] = {{region->at + first * WORDS, PAGE / 2}, {region->at + first * WORDS + WORDS / 2, pages * PAGE - PAGE / 2}};
    check(self, pwritev(file, out, 2, 0) == (ssize_t)(pages * PAGE), "pwritev");
    uint64_t *tags = malloc(pages * 8);
    memcpy(tags, region->tags + first, pages * 8);
    check(self, pread(file, other->at + there * WORDS, pages * PAGE, 0) == (ssize_t)(pages * PAGE), "pread");
    memcpy(other->tags + there, tags, pages * 8);
    free(tags);
    close(file);
}

static void run(struct self *self);

static void *thread(void *of) {
    in_this_thread = of;
    run(of);
    free(of);
    return 0;
}

// Some steps in a thread of its own, with memory of its own.
static void by_a_thread(struct self *self) {
    struct self *other = calloc(1, sizeof *other);
    *other = (struct self){.seed = scramble(self->state++), .pages_max = self->pages_max / 4, .steps = self->steps / 8 + 4, .depth = DEPTH_MAX + 1, .last = "begin"};
    other->state = other->seed;
    pthread_t id;
    check(self, !pthread_create(&id, 0, thread, other), "pthread_create");
    check(self, !pthread_join(id, 0), "pthread_join");
}

static void reap(struct self *self, int at) {
    int status;
    check(self, waitpid(self->children[at], &status, 0) == self->children[at], "waitpid");
    if (self->killed[at] ? WIFEXITED(status) && WEXITSTATUS(status) : status)
        wrong(self, "child %d ended with %#x", self->children[at], status);
    self->children_count--;
    self->children[at] = self->children[self->children_count];
    self->killed[at] = self->killed[self->children_count];
}

static _Noreturn void execute(struct self *self) {
    char seed[24], steps[24], threads[24], pages[24];
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)(scramble(self->state++) >> 8));
    snprintf(steps, sizeof steps, "%u", self->steps / 4 + 1);
    snprintf(threads, sizeof threads, "%d", 1 + (int)draw(self, 2));
    snprintf(pages, sizeof pages, "%zu", self->pages_max / 2);
    char depth[12];
    snprintf(depth, sizeof depth, "%d", self->depth + 1);
    execl(program, program, seed, steps, threads, pages, depth, (char *)0);
    _exit(5);
}

// What a child finds of this thread's memory.
static void begin_child(struct self *self) {
    for (int i = self->regions_count - 1; i >= 0; i--) {
        struct region *region = &self->regions[i];
        if (region->hidden)
            forget(self, region);
        else if (region->wiped) {
            zeros(region, 0, region->pages);
            strcat(region->history, "-");
        }
    }
    self->children_count = 0;
    self->depth++;
    self->steps = self->steps / 4 + 1;
    self->seed = self->state = scramble(self->state ^ 0xC0FFEE);
}

static void *spin(void *of) {
    struct self *self = in_this_thread = of;
    // Reads what the first thread executes over. (A loop that does nothing else the compiler may take for one that ends.)
    for (;; sched_yield())
        for (int i = 0; i < self->regions_count; i++)
            for (size_t page = 0; page < self->regions[i].pages; page++)
                verify(self, &self->regions[i], page);
    return 0;
}

static void have_child(struct self *self) {
    if (self->depth >= DEPTH_MAX || self->children_count == CHILDREN_MAX)
        return;
    pid_t pid = fork();
    check(self, pid >= 0, "fork");
    if (pid == 0) {
        self->last = "fork";
        begin_child(self);
        switch (draw(self, 5)) {
        case 0:
            verify_all(self);
            _exit(0);
        case 1:
            execute(self);
        case 2: { // in the middle of what another thread does
            pthread_t id;
            check(self, !pthread_create(&id, 0, spin, self), "pthread_create");
            struct timespec pause = {0, 1000 * draw(self, 20000)};
            nanosleep(&pause, 0);
            if (draw(self, 2))
                execute(self);
            _exit(0);
        }
        default:
            verify_all(self);
            run(self);
            _exit(0);
        }
    }
    self->killed[self->children_count] = 0;
    self->children[self->children_count++] = pid;
}

static void end_or_stop_child(struct self *self) {
    if (self->children_count == 0)
        return;
    int at = draw(self, self->children_count);
    switch (draw(self, 6)) {
    case 0:
        self->killed[at] = 1;
        kill(self->children[at], SIGKILL);
        break;
    case 1: {
        kill(self->children[at], SIGSTOP);
        struct timespec pause = {0, 1000000 * draw(self, 30)};
        nanosleep(&pause, 0);
        kill(self->children[at], SIGCONT);
        return;
    }
    }
    reap(self, at);
}

static void spawn(struct self *self) {
    char *arguments[] = {"true", 0};
    pid_t pid;
    int status;
    check(self, (errno = posix_spawn(&pid, "/bin/true", 0, 0, arguments, environ)) == 0, "posix_spawn");
    check(self, waitpid(pid, &status, 0) == pid && status == 0, "waitpid of true");
}

static void step(struct self *self) {
    struct {
        const char *name;
        unsigned weight;
        void (*of_region)(struct self *, struct region *);
        void (*of_self)(struct self *);
    } const acts[] = {
        {"write", 30, write_some, 0}, {"read", 30, read_some, 0}, {"map", 10, 0, map_new}, {"discard", 6, discard, 0},
        {"map over", 3, map_over, 0}, {"unmap", 5, unmap, 0}, {"resize", 6, resize, 0}, {"protect", 3, protect, 0},
        {"keep", 2, keep_from_children, 0}, {"lock", 2, lock, 0}, {"file", 5, by_a_file, 0}, {"thread", 1, 0, by_a_thread},
        {"child", 3, 0, have_child}, {"end", 4, 0, end_or_stop_child}, {"spawn", 1, 0, spawn},
    };
    enum { ACTS = sizeof acts / sizeof *acts };
    unsigned all = 0, at = 0;
    for (unsigned i = 0; i < ACTS; i++)
        all += acts[i].weight;
    uint64_t drawn = draw(self, all);
    while (drawn >= acts[at].weight)
        drawn -= acts[at++].weight;
    const char *without = getenv("WITHOUT");
    if (without && strstr(without, acts[at].name))
        return;
    struct region *region = acts[at].of_region ? any(self) : 0;
    if (acts[at].of_self)
        acts[at].of_self(self);
    else if (region) {
        size_t length = strlen(region->history);
        if (length + 2 >= sizeof region->history)
            memmove(region->history, region->history + 1, length--);
        region->history[length] = acts[at].name[0] ^ (strcmp(acts[at].name, "resize") ? 0 : 32);
        region->history[length + 1] = 0;
        self->region = region;
        acts[at].of_region(self, region);
    }
    self->region = 0;
    self->last = acts[at].name;
}

// All of a thread's steps, to the end of its memory and its children.
static void run(struct self *self) {
    for (unsigned i = 0; i < self->steps; i++)
        step(self);
    self->last = "all";
    verify_all(self);
    while (self->children_count)
        reap(self, 0);
    while (self->regions_count) {
        check(self, !munmap(self->regions[0].at, self->regions[0].pages * PAGE), "munmap of all");
        forget(self, &self->regions[0]);
    }
}

// It has memory that it is not allowed to touch, or has lost.
static void fault(int number, siginfo_t *info, void *context) {
    (void)context;
    struct self *self = in_this_thread;
    if (!self)
        _exit(6);
    for (int i = 0; i < self->regions_count; i++)
        if ((uint64_t *)info->si_addr - self->regions[i].at < (ptrdiff_t)(self->regions[i].pages * WORDS) && (uint64_t *)info->si_addr >= self->regions[i].at)
            self->region = &self->regions[i];
    wrong(self, "signal %d at %p", number, info->si_addr);
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: torture SEED STEPS [THREADS] [PAGES]\n");
        return 2;
    }
    program = "/proc/self/exe";
    struct sigaction action = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESETHAND};
    sigaction(SIGSEGV, &action, 0);
    sigaction(SIGBUS, &action, 0);
    int threads = argc > 3 ? atoi(argv[3]) : 2;
    pthread_t ids[64];
    for (int i = 0; i < threads; i++) {
        struct self *self = calloc(1, sizeof *self);
        *self = (struct self){.seed = scramble(strtoull(argv[1], 0, 10) + i), .pages_max = argc > 4 ? strtoull(argv[4], 0, 10) : 8192,
                              .steps = atoi(argv[2]), .depth = argc > 5 ? atoi(argv[5]) : 0, .last = "begin"};
        self->state = self->seed;
        if (pthread_create(&ids[i], 0, thread, self))
            return 2;
    }
    for (int i = 0; i < threads; i++)
        pthread_join(ids[i], 0);
    return 0;
}
