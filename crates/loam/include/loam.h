/* For programs that know of Loam. Nothing here is needed to run under `loam run`. */
#ifndef LOAM_H
#define LOAM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Parts: harmless without Loam, and there is nothing to link. Null without Loam: call loam_part_begins. */
void loam_part(unsigned part) __attribute__((weak));

/* A part of the program begins: a stretch with an access pattern of its own, such as a phase of each iteration. Numbers are the
 * program's, from 1 to 255; the same number is the same part. Loam keeps apart what it learns of page sizes in each. Any thread
 * may call it; it holds for the whole program. */
static inline void loam_part_begins(unsigned part) {
    if (loam_part) loam_part(part);
}

/* What follows is in libloam.so (pkg-config loam): a program that was not started by `loam run` borrows by itself. Any thread may call it. */

enum {
    LOAM_OK = 0,
    LOAM_NO_COMMAND = 1,    /* `loam` cannot be started: install it, or set the variable LOAM to its path */
    LOAM_REFUSED = 2,       /* it says why it does not serve: loam_error */
    LOAM_NO_ANSWER = 3,     /* it is of another version */
    LOAM_NO_SHIM = 4,       /* libloam_shim.so cannot be loaded */
    LOAM_NOT_CONNECTED = 5, /* loam_connect comes first */
    LOAM_FULL = 6,          /* no memory, neither in the region nor on this machine */
    LOAM_INVALID = 7,       /* an argument that cannot be */
    LOAM_TOO_MUCH = 8       /* there is advice for too many ranges of this process (4096), or too many have budgets (64): take some back, or give it for larger ranges */
};

/* Has an agent serve this process until it ends: of what it allocates from now on at most local_bytes stay here, and its region reserves region_bytes of
 * address space. flags: more flags of `loam run`, such as "--lender", "10.0.0.7:7070", closed by a null pointer; or null. A process that is served already,
 * as it was started by `loam run` or has connected before, goes on as it is. Children that fork are served too. LOAM_OK, or one of the others, and then nothing
 * has changed. */
int loam_connect(uint64_t local_bytes, uint64_t region_bytes, const char *const *flags);

/* 1: this process is served. */
int loam_is_connected(void);

/* Memory of the region, as calloc, realloc and free give it; null: loam_error says why. Small requests, and what the region has no room for, are
 * ordinary memory. What is not from here must not be freed here, nor the other way round. */
void *loam_calloc(size_t count, size_t bytes);
void *loam_realloc(void *memory, size_t bytes);
void loam_free(void *memory);

/* What the program will do with memory: LOAM_WILL_NEED, use it soon, so that what is away of it is fetched now; LOAM_WILL_NOT_NEED, not use it for a
 * while, so that its whole pages leave now and make room. From now on: LOAM_SEQUENTIAL, go through it from lower to higher addresses, so that what lies ahead
 * is fetched from the first touch on, and what lies behind (the last 8192 pages) leaves first when room is wanted; LOAM_RANDOM, use it in no order, so that a fault brings one
 * page of 4 KiB and nothing is fetched ahead; LOAM_NORMAL takes these two back. It changes no byte.
 * LOAM_OK, or LOAM_NOT_CONNECTED, LOAM_NO_ANSWER, LOAM_INVALID, LOAM_TOO_MUCH. */
enum { LOAM_WILL_NEED = 0, LOAM_WILL_NOT_NEED = 1, LOAM_NORMAL = 2, LOAM_SEQUENTIAL = 3, LOAM_RANDOM = 4 };
int loam_advise(const void *memory, size_t bytes, int advice);

/* Which memory keeps its place when there is not room for all, from now on: low leaves before normal before high. Of each kind a 64th of the budget (or four
 * pages) stays to go on with, and of sixteen pages that leave one is the oldest of high memory, so what is not used any more goes one day. Answers as above.
 * This, LOAM_SEQUENTIAL and LOAM_RANDOM hold for their addresses until something else is said of them, or they are unmapped, discarded (MADV_DONTNEED), or
 * freed or resized by the functions above (outside of the region from 4 KiB on). A child that forks has its parent's. */
enum { LOAM_PRIORITY_LOW = 0, LOAM_PRIORITY_NORMAL = 1, LOAM_PRIORITY_HIGH = 2 };
int loam_prioritize(const void *memory, size_t bytes, int priority);

/* On what terms memory is paged from now on, in place of what `loam run` or loam_connect were told of all memory, and of all terms that were set of this before.
 * 0 each: as everywhere; a null pointer takes everything back. What is here already stays in the pages that it came in. Answers as above, LOAM_INVALID where
 * pages have no such size or there is no such plan. These hold as long as the others do. */
struct loam_terms {
    size_t page_bytes;    /* what a fault brings: a power of two from 4096 to 1048576. No page lies across the edge of such memory */
    uint64_t local_bytes; /* at most so much of it is here, whether or not there is room; at least eight pages. When more comes, what came first of it leaves */
    int plan;             /* LOAM_PLAN_...: in which order the pieces of a page come (--fetch-plan) */
};
enum {
    LOAM_PLAN_LAZY = 1,
    LOAM_PLAN_FULL = 2,
    LOAM_PLAN_EAGER = 3,
    LOAM_PLAN_PIPELINED = 4,
    LOAM_PLAN_PIPELINED_DOUBLED = 5,
    LOAM_PLAN_PIPELINED_BESIDE = 6,
    LOAM_PLAN_LEARNED = 7
};
int loam_set_terms(const void *memory, size_t bytes, const struct loam_terms *terms);

/* One line about the last failure in this thread: what, where, what to do. Valid until the next one. */
const char *loam_error(void);

#ifdef __cplusplus
}
#endif
#endif
