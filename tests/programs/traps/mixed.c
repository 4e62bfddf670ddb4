/* Threads that do with memory all that programs do, in a fixed random order each: map it, grow, shrink and move it, discard, protect, replace and unmap parts. What was written to
 * each page is known at any time. */
#include "traps.h"

enum { THREADS = 2, AREAS = 40, ROUNDS = 1500, PAGES_MAX = 1500, WORDS = PAGE_BYTES / sizeof(uint64_t) };

struct area {
    unsigned char *at; /* NULL: none */
    size_t pages;
    bool may_be_split; /* into several mappings */
    uint64_t stamps[PAGES_MAX]; /* 0: a page of zeros */
};

struct worker {
    uint64_t x;
    size_t pages_left; /* that it may map */
    struct area areas[AREAS];
};

static uint64_t draw(struct worker *worker, uint64_t below) {
    worker->x = splitmix64(worker->x);
    return worker->x % below;
}

static uint64_t *words(const struct area *area, size_t page) {
    return (uint64_t *)(area->at + page * PAGE_BYTES);
}

static void read_page(const char *what, const struct area *area, size_t page) {
    uint64_t stamp = area->stamps[page], first = words(area, page)[0], last = words(area, page)[WORDS - 1];
    if (first != stamp || last != (stamp == 0 ? 0 : ~stamp))
        fail(false, "%s: page %zu of %zu at %p: expected %lx, got %lx and %lx", what, page, area->pages,
             (void *)words(area, page), stamp, first, last);
}

static void write_page(struct worker *worker, struct area *area, size_t page) {
    uint64_t stamp = draw(worker, UINT64_MAX) | 1;
    area->stamps[page] = words(area, page)[0] = stamp;
    words(area, page)[WORDS - 1] = ~stamp;
}

/* Pages that are zeros now: read, and most of them written. */
static void begin(struct worker *worker, const char *what, struct area *area, size_t first, size_t pages) {
    for (size_t page = first; page < first + pages; page++) {
        area->stamps[page] = 0;
        read_page(what, area, page);
        if (draw(worker, 4) > 0) write_page(worker, area, page);
    }
}

static void *map_at(void *at, size_t pages, int flags) {
    return mmap(at, pages * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
}

static void forget(struct worker *worker, struct area *area) {
    worker->pages_left += area->pages;
    area->at = NULL;
}

static void map_new(struct worker *worker, struct area *area) {
    size_t pages = 1 + draw(worker, draw(worker, 4) == 0 ? 60 : 700);
    if (pages > worker->pages_left) return;
    area->at = map_at(NULL, pages, 0);
    EXPECT(area->at != MAP_FAILED);
    area->pages = pages;
    area->may_be_split = false;
    worker->pages_left -= pages;
    begin(worker, "new", area, 0, pages);
}

static void unmap(struct worker *worker, struct area *area) {
    for (size_t page = 0; page < area->pages; page++) read_page("before it is unmapped", area, page);
    EXPECT(munmap(area->at, area->pages * PAGE_BYTES) == 0);
    forget(worker, area);
}

static void resize(struct worker *worker, struct area *area) {
    size_t pages = 1 + draw(worker, PAGES_MAX), before = area->pages;
    if (pages > before && pages - before > worker->pages_left) return;
    void *at = mremap(area->at, before * PAGE_BYTES, pages * PAGE_BYTES, MREMAP_MAYMOVE);
    if (at == MAP_FAILED && area->may_be_split) return;
    EXPECT(at != MAP_FAILED);
    area->at = at;
    area->pages = pages;
    worker->pages_left += before - pages; /* modulo 2^64, as it may grow */
    if (pages > before) begin(worker, "grown", area, before, pages - before);
}

/* One thing that is done to a part of an area. */
static void change_part(struct worker *worker, struct area *area, int what) {
    size_t first = draw(worker, area->pages), pages = 1 + draw(worker, area->pages - first);
    unsigned char *at = area->at + first * PAGE_BYTES;
    size_t bytes = pages * PAGE_BYTES;
    if (what > 0) area->may_be_split = true;
    switch (what) {
    case 0:
        EXPECT(madvise(at, bytes, MADV_DONTNEED) == 0);
        begin(worker, "discarded", area, first, pages);
        break;
    case 1:
        EXPECT(mprotect(at, bytes, PROT_NONE) == 0);
        if (draw(worker, 2) == 0) usleep(draw(worker, 300));
        EXPECT(mprotect(at, bytes, PROT_READ | PROT_WRITE) == 0);
        for (size_t page = first; page < first + pages; page += 1 + draw(worker, 9)) read_page("protected", area, page);
        break;
    case 2:
        EXPECT(map_at(at, pages, MAP_FIXED) == at);
        begin(worker, "mapped over", area, first, pages);
        break;
    default:
        EXPECT(munmap(at, bytes) == 0);
        if (map_at(at, pages, MAP_FIXED_NOREPLACE) == at) {
            begin(worker, "a hole filled again", area, first, pages);
        } else { /* somebody else's by now */
            size_t after = area->pages - first - pages;
            EXPECT(first == 0 || munmap(area->at, first * PAGE_BYTES) == 0);
            EXPECT(after == 0 || munmap(at + bytes, after * PAGE_BYTES) == 0);
            forget(worker, area);
        }
    }
}

static void *work(void *argument) {
    struct worker *worker = argument;
    for (int round = 0; round < ROUNDS; round++) {
        struct area *area = &worker->areas[draw(worker, AREAS)];
        if (area->at == NULL) {
            map_new(worker, area);
            continue;
        }
        int what = draw(worker, 16);
        if (what < 4) change_part(worker, area, what);
        else if (what < 6) unmap(worker, area);
        else if (what < 8) resize(worker, area);
        else
            for (int i = 0; i < 60; i++) {
                size_t page = draw(worker, area->pages);
                read_page("in use", area, page);
                if (i % 3 == 0) write_page(worker, area, page);
            }
    }
    for (struct area *area = worker->areas; area < worker->areas + AREAS; area++)
        if (area->at != NULL) unmap(worker, area);
    return NULL;
}

static void mixed(void) {
    static struct worker workers[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i].x = 900 + i;
        workers[i].pages_left = 3 * options.data_bytes / 2 / PAGE_BYTES / THREADS;
        threads[i] = thread_start(work, &workers[i]);
    }
    for (int i = 0; i < THREADS; i++) thread_join(threads[i]);
}

const struct trap traps_mixed[] = {
    {"map_mixed", mixed, "all that is done with mappings, by threads, in a random order", 0},
    {NULL, NULL, NULL, 0},
};
