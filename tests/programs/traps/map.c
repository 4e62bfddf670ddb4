/* Mappings that grow, move, shrink, are discarded, replaced and made again while their pages are away. */
#include "traps.h"
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/syscall.h>

static unsigned char *area;

static void prepare(uint64_t seed) {
    area = area_new(options.data_bytes);
    fill(area, options.data_bytes, seed);
    sweep();
}

static void grow(void) {
    size_t bytes = 4 * MIB;
    area = area_new(bytes);
    fill(area, bytes, 300);
    while (bytes < options.data_bytes) {
        sweep();
        size_t more = bytes * 2 < options.data_bytes ? bytes * 2 : options.data_bytes;
        unsigned char *grown = mremap(area, bytes, more, MREMAP_MAYMOVE);
        EXPECT(grown != MAP_FAILED);
        area = grown;
        check("kept by growing", area, bytes, 300);
        check_zero("new part", area + bytes, more - bytes);
        fill_at(area + bytes, more - bytes, 300, bytes);
        bytes = more;
    }
    sweep();
    EXPECT(mremap(area, bytes, bytes / 2, 0) == area);
    check("kept by shrinking", area, bytes / 2, 300);
}

/* A mapping grows all the time, also while the pager looks at it, and stays one. */
static void grow_by_pages(void) {
    prepare(305);
    size_t least = 256 * PAGE_BYTES, most = 656 * PAGE_BYTES;
    for (int round = 0; round < 150; round++) {
        unsigned char *small = area_new(least);
        fill(small, least, 306);
        for (size_t bytes = least; bytes < most; bytes += PAGE_BYTES) {
            small = mremap(small, bytes, bytes + PAGE_BYTES, MREMAP_MAYMOVE);
            EXPECT(small != MAP_FAILED);
            fill_at(small + bytes, PAGE_BYTES, 306, bytes);
        }
        check("grown by pages", small, most, 306);
        EXPECT(munmap(small, most) == 0);
        if (round % 15 == 0) check("beside it", area, options.data_bytes, 305);
    }
    /* What is two mappings, of which one is not to be read, is still not one. */
    unsigned char *two = area_new(2 * MIB);
    EXPECT(mprotect(two + MIB, MIB, PROT_NONE) == 0);
    EXPECT(mremap(two, 2 * MIB, 4 * MIB, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT);
}

/* Mappings of several threads grow and move: one may come to where another has just been, of which the kernel tells later. */
static void *grow_and_move(void *argument) {
    uint64_t seed = (uintptr_t)argument, x = seed;
    for (int round = 0; round < 8; round++) {
        size_t bytes = 200 * PAGE_BYTES;
        unsigned char *mine = area_new(bytes);
        fill(mine, bytes, seed);
        for (int step = 0; step < 400; step++) {
            size_t more = bytes + (1 + (x = splitmix64(x)) % 16) * PAGE_BYTES;
            mine = mremap(mine, bytes, more, MREMAP_MAYMOVE);
            EXPECT(mine != MAP_FAILED);
            check_zero("new part", mine + bytes, more - bytes);
            fill_at(mine + bytes, more - bytes, seed, bytes);
            bytes = more;
        }
        check("grown beside others", mine, bytes, seed);
        EXPECT(munmap(mine, bytes) == 0);
    }
    return NULL;
}

static void grow_by_threads(void) {
    prepare(307);
    pthread_t threads[3];
    for (uintptr_t n = 0; n < 3; n++) threads[n] = thread_start(grow_and_move, (void *)(308 + n * 1000));
    for (int n = 0; n < 3; n++) thread_join(threads[n]);
    check("beside them", area, options.data_bytes, 307);
}

static void move(void) {
    prepare(310);
    for (int round = 0; round < 4; round++) {
        /* A hole of the right size, then the area moved over it. */
        unsigned char *target = area_new(options.data_bytes), *old = area;
        fill(target, MIB, 311);
        area = mremap(old, options.data_bytes, options.data_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, target);
        EXPECT(area == target);
        if (round % 2 == 0) sweep();
        check("moved", area, options.data_bytes, 310);
        /* What is mapped at the old place is new. */
        unsigned char *fresh = mmap(old, 2 * MIB, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        EXPECT(fresh == old);
        check_zero("fresh memory at the old place", fresh, 2 * MIB);
        EXPECT(munmap(fresh, 2 * MIB) == 0);
    }
}

static void move_part(void) {
    prepare(320);
    /* The middle goes elsewhere, the ends stay. */
    size_t quarter = options.data_bytes / 4;
    unsigned char *target = area_new(quarter * 2);
    EXPECT(mremap(area + quarter, 2 * quarter, 2 * quarter, MREMAP_MAYMOVE | MREMAP_FIXED, target) == target);
    sweep();
    check_at("start", area, quarter, 320, 0);
    check_at("moved middle", target, 2 * quarter, 320, quarter);
    check_at("end", area + 3 * quarter, quarter, 320, 3 * quarter);
}

static void move_and_shrink(void) {
    prepare(325);
    /* What is moved becomes half as large on the way; it covers half of what is at its new place, and nothing behind that. */
    size_t half = options.data_bytes / 2, quarter = half / 2;
    unsigned char *target = area_new(half);
    fill_at(target, half, 326, 0);
    sweep();
    EXPECT(mremap(area, half, quarter, MREMAP_MAYMOVE | MREMAP_FIXED, target) == target);
    unsigned char present;
    EXPECT(mincore(area + quarter, PAGE_BYTES, &present) == -1 && errno == ENOMEM);
    sweep();
    check_at("moved", target, quarter, 325, 0);
    check_at("behind its new place", target + quarter, quarter, 326, quarter);
    check_at("not moved", area + half, half, 325, half);
    /* Refused: it would cover itself, or has no place. Nothing of it is lost. */
    EXPECT(mremap(area + half, half, quarter, MREMAP_MAYMOVE | MREMAP_FIXED, area + half + quarter / 2) == MAP_FAILED);
    EXPECT(mremap(area + half, half, quarter, MREMAP_MAYMOVE | MREMAP_FIXED, target + 1) == MAP_FAILED);
    /* Or with what it may not be asked for: to move without leave, to leave the place empty as well, beyond all addresses, from no page. */
    unsigned char *beyond = (unsigned char *)((1ul << 47) - quarter);
    static const int refused[] = {MREMAP_FIXED, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, MREMAP_MAYMOVE | MREMAP_FIXED | 64};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        EXPECT(mremap(area + half, half, quarter, refused[i], target) == MAP_FAILED && errno == EINVAL);
    EXPECT(mremap(area + half, half, quarter, MREMAP_MAYMOVE | MREMAP_FIXED, beyond) == MAP_FAILED);
    EXPECT(mremap(area + half + 8, half, quarter, MREMAP_MAYMOVE | MREMAP_FIXED, target) == MAP_FAILED && errno == EINVAL);
    check_at("not moved either", area + half, half, 325, half);
    check_at("where nothing came", target, quarter, 325, 0);
}

/* A shared segment that takes the place of what is there, of which the kernel tells nobody; and new memory where it was. */
static void segment_over(void) {
    size_t bytes = options.data_bytes / 4, from = bytes + PAGE_BYTES;
    int id = shmget(IPC_PRIVATE, bytes, IPC_CREAT | 0600);
    if (id < 0 && (errno == ENOSYS || errno == EINVAL || errno == ENOSPC)) skip("no room for shared segments here");
    EXPECT(id >= 0);
    unsigned char *elsewhere = shmat(id, NULL, 0);
    EXPECT(elsewhere != (void *)-1 && shmctl(id, IPC_RMID, NULL) == 0);
    fill(elsewhere, bytes, 341);
    prepare(340);
    EXPECT(shmat(id, area + from, 0) == (void *)-1 && errno == EINVAL);
    check_at("where nothing came", area + from, bytes, 340, from);
    EXPECT(shmat(id, area + from + 8, SHM_REMAP | SHM_RND) == area + from);
    EXPECT(shmdt(elsewhere) == 0);
    check("segment", area + from, bytes, 341);
    fill(area + from, bytes, 342);
    for (int round = 0; round < 3; round++) sweep();
    check("segment after sweeps", area + from, bytes, 342);
    EXPECT(shmdt(area + from) == 0);
    for (int round = 0; round < 2; round++) {
        EXPECT(mmap(area + from, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == area + from);
        check_zero("new where it was", area + from, bytes);
        fill(area + from, bytes, 343);
        for (int n = 0; n < 3; n++) sweep();
        check("written where it was", area + from, bytes, 343);
    }
    check_at("before it", area, from, 340, 0);
    check_at("behind it", area + from + bytes, options.data_bytes - from - bytes, 340, from + bytes);
}

static void move_dontunmap(void) {
    prepare(330);
    unsigned char *old = area;
    /* By the system call: some C libraries pass on a wrong address without MREMAP_FIXED. */
    area = (unsigned char *)syscall(SYS_mremap, old, options.data_bytes, options.data_bytes,
                                    MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0);
    if (area == MAP_FAILED && errno == EINVAL) skip("this kernel has no MREMAP_DONTUNMAP");
    EXPECT(area != MAP_FAILED && area != old);
    sweep();
    check_zero("the place that was left", old, options.data_bytes);
    check("moved", area, options.data_bytes, 330);
}

static void dontneed(void) {
    prepare(340);
    size_t half = options.data_bytes / 2;
    for (int round = 0; round < 3; round++) {
        EXPECT(madvise(area, half, MADV_DONTNEED) == 0);
        check_zero("discarded", area, half);
        check_at("not discarded", area + half, half, 340, half);
        fill_at(area, half, 340, 0);
        sweep();
    }
    /* Every second page, so that the ranges are small. */
    for (size_t at = 0; at < options.data_bytes; at += 2 * PAGE_BYTES)
        EXPECT(madvise(area + at, PAGE_BYTES, MADV_DONTNEED) == 0);
    sweep();
    for (size_t at = 0; at < options.data_bytes; at += 2 * PAGE_BYTES) {
        check_zero("discarded page", area + at, PAGE_BYTES);
        check_at("page beside a discarded one", area + at + PAGE_BYTES, PAGE_BYTES, 340, at + PAGE_BYTES);
    }
}

static void lazily_freed(void) {
    prepare(350);
    size_t half = options.data_bytes / 2;
    EXPECT(madvise(area, half, MADV_FREE) == 0);
    /* Written pages are the program's again, whole: the rest of a page is old or zero, and stays what it was. */
    for (size_t at = 0; at < half; at += 4 * PAGE_BYTES) fill_at(area + at, PAGE_BYTES, 351, at);
    sweep();
    for (size_t at = 0; at < half; at += PAGE_BYTES) {
        if (at % (4 * PAGE_BYTES) == 0) {
            check_at("written after MADV_FREE", area + at, PAGE_BYTES, 351, at);
        } else {
            /* The kernel may drop the page between two reads: old words first, zeros from then on. */
            bool dropped = false;
            for (size_t word = 0; word < PAGE_BYTES; word += 8) {
                uint64_t got = *(volatile uint64_t *)(area + at + word), old = pattern(350, at + word);
                dropped = dropped || got == 0;
                if (got != (dropped ? 0 : old))
                    fail(false, "freed page: offset %zu: expected %016llx or zeros to the end, got %016llx", at + word,
                         (unsigned long long)old, (unsigned long long)got);
            }
        }
    }
    check_at("not freed", area + half, half, 350, half);
}

static int file_of_one_page(void) {
    int fd = file_new(0);
    EXPECT(ftruncate(fd, PAGE_BYTES) == 0);
    return fd;
}
/* What is freed lazily is still there, so that writing to it again causes no fault; jemalloc does so all the time. It has to leave as everything else does. */
static void lazily_freed_and_filled(void) {
    prepare(355);
    size_t piece = options.data_bytes / 64;
    for (size_t at = 0; at < options.data_bytes; at += piece) {
        fill_at(area + at, piece, 356, at);
        EXPECT(madvise(area + at, piece, MADV_FREE) == 0);
        fill_at(area + at, piece, 357, at);
    }
    for (int round = 0; round < 4; round++) {
        sweep();
        check("filled after MADV_FREE", area, options.data_bytes, 357);
    }
    unsigned char *of_a_file = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE, file_of_one_page(), 0);
    EXPECT(of_a_file != MAP_FAILED);
    fill(of_a_file, PAGE_BYTES, 358);
    EXPECT(madvise(of_a_file, PAGE_BYTES, MADV_FREE) == -1 && errno == EINVAL);
    check("refused to be freed", of_a_file, PAGE_BYTES, 358);
}

static void unmap_half(void) {
    prepare(360);
    size_t quarter = options.data_bytes / 4;
    EXPECT(munmap(area + quarter, 2 * quarter) == 0);
    unsigned char present;
    EXPECT(mincore(area + quarter, PAGE_BYTES, &present) == -1 && errno == ENOMEM);
    sweep();
    check_at("before the hole", area, quarter, 360, 0);
    check_at("after the hole", area + 3 * quarter, quarter, 360, 3 * quarter);
    EXPECT(mmap(area + quarter, 2 * quarter, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == area + quarter);
    check_zero("mapped again", area + quarter, 2 * quarter);
    fill_at(area + quarter, 2 * quarter, 360, quarter);
    sweep();
    check("whole again", area, options.data_bytes, 360);
}

static void fixed_over(void) {
    prepare(370);
    size_t quarter = options.data_bytes / 4;
    for (uint64_t round = 0; round < 3; round++) {
        EXPECT(mmap(area + quarter, quarter, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
               area + quarter);
        check_at("before", area, quarter, 370, 0);
        check_zero("mapped over", area + quarter, quarter);
        check_at("after", area + 2 * quarter, 2 * quarter, 370, 2 * quarter);
        fill_at(area + quarter, quarter, 371 + round, quarter);
        sweep();
        check_at("written since", area + quarter, quarter, 371 + round, quarter);
    }
    /* A file instead, then memory again. */
    int fd = file_new(0);
    EXPECT(ftruncate(fd, (off_t)quarter) == 0);
    EXPECT(mmap(area, quarter, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == area);
    fill(area, quarter, 379);
    sweep();
    check("file pages", area, quarter, 379);
    EXPECT(mmap(area, quarter, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == area);
    check_zero("memory instead of the file", area, quarter);
    check_at("the rest", area + 2 * quarter, 2 * quarter, 370, 2 * quarter);
}

/* Two threads unmap and map at the same address, discard, and write, while a third is at other memory. */
static volatile bool stop;
static void *third(void *argument) {
    for (uint64_t round = 0; !stop; round++) sweep();
    return argument;
}
static void *remapper(void *argument) {
    size_t half = options.data_bytes / 2;
    unsigned char *mine = argument;
    size_t slot = 2 * MIB;
    uint64_t x = (uintptr_t)mine;
    for (int round = 0; round < 120; round++) {
        size_t at = (x = splitmix64(x)) % (half / slot) * slot;
        fill_at(mine + at, slot, 381 + (uint64_t)round, at);
        switch (round % 3) {
        case 0:
            EXPECT(munmap(mine + at, slot) == 0);
            EXPECT(mmap(mine + at, slot, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
                   mine + at);
            break;
        case 1: EXPECT(madvise(mine + at, slot, MADV_DONTNEED) == 0); break;
        default:
            EXPECT(mmap(mine + at, slot, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
                   mine + at);
        }
        check_zero(round % 3 == 1 ? "just discarded" : "just mapped", mine + at, slot);
        fill_at(mine + at, slot, 380, at);
        size_t other = (x = splitmix64(x)) % (half / slot) * slot;
        check_at("slot that was left alone", mine + other, slot, 380, other);
    }
    return NULL;
}
static void unmap_race(void) {
    area = area_new(options.data_bytes);
    size_t half = options.data_bytes / 2;
    fill(area, half, 380);
    fill(area + half, half, 380);
    pthread_t busy = thread_start(third, NULL);
    pthread_t first = thread_start(remapper, area), second = thread_start(remapper, area + half);
    thread_join(first);
    thread_join(second);
    stop = true;
    thread_join(busy);
    check("first half", area, half, 380);
    check("second half", area + half, half, 380);
}

static void heap(void) {
    /* Small blocks, grown and freed in a fixed random order; the C library uses brk, mmap, mremap, DONTNEED by itself. */
    enum { BLOCKS = 20000 };
    static struct { unsigned char *at; size_t bytes; uint64_t seed; } blocks[BLOCKS];
    uint64_t x = 390;
    size_t mean = options.data_bytes / BLOCKS;
    for (int round = 0; round < 2 * BLOCKS; round++) {
        size_t i = (x = splitmix64(x)) % BLOCKS;
        if (blocks[i].at != NULL) check("heap block", blocks[i].at, blocks[i].bytes, blocks[i].seed);
        size_t bytes = (x = splitmix64(x)) % (2 * mean) / 8 * 8 + 8;
        if (x % 64 == 0) bytes *= 64;
        if (x % 5 == 0 && blocks[i].at != NULL) {
            free(blocks[i].at);
            blocks[i].at = NULL;
            continue;
        }
        blocks[i].at = realloc(blocks[i].at, bytes);
        EXPECT(blocks[i].at != NULL);
        blocks[i].bytes = bytes;
        blocks[i].seed = x;
        fill(blocks[i].at, bytes, x);
    }
    sweep();
    for (size_t i = 0; i < BLOCKS; i++)
        if (blocks[i].at != NULL) check("heap block at the end", blocks[i].at, blocks[i].bytes, blocks[i].seed);
}

static void heap_edge(void) {
    /* What C libraries do all the time: a little of the heap's end is given back, and soon taken again. */
    enum { STEP_PAGES = 256, ROUNDS = 2000 };
    unsigned char *base = sbrk(0);
    base += -(uintptr_t)base % PAGE_BYTES;
    size_t pages = 0, target = options.data_bytes / PAGE_BYTES;
    uint64_t x = 395;
    for (int round = 0; round < ROUNDS || pages < target; round++) {
        size_t more = 1 + (x = splitmix64(x)) % STEP_PAGES;
        EXPECT(brk(base + (pages + more) * PAGE_BYTES) == 0);
        check_zero("what the heap has grown by", base + pages * PAGE_BYTES, more * PAGE_BYTES);
        fill_at(base + pages * PAGE_BYTES, more * PAGE_BYTES, 395, pages * PAGE_BYTES);
        pages += more;
        for (int i = 0; i < 8; i++) {
            /* Most of them near the end. */
            size_t page = pages - 1 - (x = splitmix64(x)) % (i == 0 || pages < 2 * STEP_PAGES ? pages : 2 * STEP_PAGES);
            check_at("page of the heap", base + page * PAGE_BYTES, PAGE_BYTES, 395, page * PAGE_BYTES);
        }
        size_t less = (x = splitmix64(x)) % (pages < target ? more : 2 * STEP_PAGES);
        pages -= less < pages ? less : 0;
        EXPECT(brk(base + pages * PAGE_BYTES) == 0);
    }
    sweep();
    check("heap at the end", base, pages * PAGE_BYTES, 395);
}

/* Memory that has only just been mapped is filled at once, piece after piece, several times what may stay: nobody gives its pages, so it is the calls
 * for more that have to wait. */
enum { PIECES_MAX = 1024, PIECE_THREADS = 2 };
static unsigned char *pieces[PIECE_THREADS][PIECES_MAX];

static void fill_pieces(unsigned char *(*get)(size_t), size_t bytes, int of) {
    size_t count = 2 * options.data_bytes / bytes;
    EXPECT(count <= PIECES_MAX);
    for (size_t i = 0; i < count; i++) {
        pieces[of][i] = get(bytes);
        EXPECT(pieces[of][i] != NULL);
        fill(pieces[of][i], bytes, 400 + i);
    }
    for (size_t i = 0; i < count; i++) check("piece", pieces[of][i], bytes, 400 + i);
}
static unsigned char *get_allocated(size_t bytes) { return malloc(bytes); }
static unsigned char *get_broken_off(size_t bytes) {
    void *at = sbrk((intptr_t)bytes);
    return at == (void *)-1 ? NULL : at;
}
static void *fill_allocated(void *of) {
    fill_pieces(get_allocated, MIB, (int)(intptr_t)of);
    return NULL;
}
static void fill_many_allocated(void) {
    pthread_t threads[PIECE_THREADS];
    for (intptr_t i = 0; i < PIECE_THREADS; i++) threads[i] = thread_start(fill_allocated, (void *)i);
    for (int i = 0; i < PIECE_THREADS; i++) thread_join(threads[i]);
}
static void fill_many_mapped(void) {
    for (int of = 0; of < PIECE_THREADS; of++) fill_pieces(area_new, 4 * MIB, of);
}
static void fill_many_broken_off(void) {
    for (int of = 0; of < PIECE_THREADS; of++) fill_pieces(get_broken_off, MIB, of);
}

const struct trap traps_map[] = {
    {"mremap_grow", grow, "mremap growing and shrinking", 0},
    {"mremap_grow_by_pages", grow_by_pages, "mremap of what has only just grown", 0},
    {"mremap_by_threads", grow_by_threads, "mappings of several threads grow and move", 0},
    {"mremap_move", move, "mremap to another address", 0},
    {"mremap_part", move_part, "mremap of the middle of a mapping", 0},
    {"mremap_shrink", move_and_shrink, "mremap to another address that leaves a part behind", 0},
    {"shmat_over", segment_over, "a shared segment over memory, by SHM_REMAP", 0},
    {"mremap_dontunmap", move_dontunmap, "mremap that leaves an empty mapping behind", 0},
    {"madv_dontneed", dontneed, "discarded memory reads as zeros", 0},
    {"madv_free", lazily_freed, "freed memory is old or zero; written memory stays", 0},
    {"madv_free_fill", lazily_freed_and_filled, "freed memory that is written again leaves as any other", 0},
    {"munmap_half", unmap_half, "a hole in a mapping, filled again", 0},
    {"map_fixed", fixed_over, "MAP_FIXED over used memory", 0},
    {"munmap_race", unmap_race, "munmap, mmap, discard at the same address by threads", 0},
    {"heap", heap, "malloc, realloc, free of small and large blocks", 0},
    {"heap_edge", heap_edge, "the end of the heap is given back and taken again by brk", 0},
    {"fill_malloc", fill_many_allocated, "two threads fill one new allocation after the other", 0},
    {"fill_mmap", fill_many_mapped, "one new mapping after the other is filled", 0},
    {"fill_sbrk", fill_many_broken_off, "the heap grows by brk and is filled", 0},
    {NULL, NULL, NULL, 0},
};
