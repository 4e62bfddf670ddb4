/* Threads that come and go, wait on pages that are away, and grow their stacks. */
#include "traps.h"
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>

static unsigned char *area;

static void *slice(void *argument) {
    size_t bytes = options.data_bytes / 64, at = (uintptr_t)argument * bytes;
    check_at("slice", area + at, bytes, 600, at);
    fill_at(area + at, bytes, 600, at);
    return NULL;
}
static void churn(void) {
    area = area_new(options.data_bytes);
    fill(area, options.data_bytes, 600);
    sweep();
    for (int round = 0; round < 3; round++) {
        for (uintptr_t i = 0; i < 64; i += 4) {
            pthread_t threads[4];
            for (uintptr_t j = 0; j < 4; j++) threads[j] = thread_start(slice, (void *)(i + j));
            for (int j = 0; j < 4; j++) thread_join(threads[j]);
        }
        sweep();
    }
    check("after 192 threads", area, options.data_bytes, 600);
}

/* All threads fault on the same pages at the same time. */
static pthread_barrier_t barrier;
static void *same(void *argument) {
    for (size_t at = 0; at < options.data_bytes; at += MIB) {
        pthread_barrier_wait(&barrier);
        check_at("same pages", area + at, MIB, 610, at);
    }
    return argument;
}
static void same_pages(void) {
    area = area_new(options.data_bytes);
    fill(area, options.data_bytes, 610);
    sweep();
    EXPECT(pthread_barrier_init(&barrier, NULL, 4) == 0);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) threads[i] = thread_start(same, NULL);
    for (int i = 0; i < 4; i++) thread_join(threads[i]);
}

/* Two threads write interleaved words of the same pages; no write may be lost when a page leaves and comes back. */
static void *interleaved(void *argument) {
    uintptr_t mine = (uintptr_t)argument;
    volatile uint64_t *words = (volatile uint64_t *)area;
    size_t count = options.data_bytes / 8;
    for (uint64_t round = 1; round <= 3; round++)
        for (size_t i = mine; i < count; i += 64) {
            uint64_t expected = round == 1 ? 0 : (round - 1) * 1000003 + i, got = words[i];
            if (got != expected)
                fail(false, "interleaved word %zu of thread %zu: expected %llu, got %llu", i, (size_t)mine,
                     (unsigned long long)expected, (unsigned long long)got);
            words[i] = round * 1000003 + i;
        }
    return NULL;
}
static void interleaved_words(void) {
    area = area_new(options.data_bytes);
    pthread_t first = thread_start(interleaved, (void *)3), second = thread_start(interleaved, (void *)40);
    sweep();
    thread_join(first);
    thread_join(second);
}

/* Words that are waited on lie in pages that leave while the waiter sleeps. */
struct turn { pthread_mutex_t lock; pthread_cond_t changed; int whose; };
static void *player(void *argument) {
    struct turn *turn = (struct turn *)(area + 3 * MIB);
    int mine = (int)(uintptr_t)argument;
    for (int round = 0; round < 4; round++) {
        EXPECT(pthread_mutex_lock(&turn->lock) == 0);
        while (turn->whose != mine) EXPECT(pthread_cond_wait(&turn->changed, &turn->lock) == 0);
        EXPECT(pthread_mutex_unlock(&turn->lock) == 0);
        sweep(); /* only one of the two is here at a time */
        EXPECT(pthread_mutex_lock(&turn->lock) == 0);
        turn->whose = !mine;
        EXPECT(pthread_cond_broadcast(&turn->changed) == 0 && pthread_mutex_unlock(&turn->lock) == 0);
    }
    return NULL;
}
static void futexes(void) {
    area = area_new(options.data_bytes);
    fill(area, options.data_bytes, 620);
    struct turn *turn = (struct turn *)(area + 3 * MIB);
    memset(turn, 0, PAGE_BYTES);
    EXPECT(pthread_mutex_init(&turn->lock, NULL) == 0 && pthread_cond_init(&turn->changed, NULL) == 0);
    sweep();
    pthread_t first = thread_start(player, (void *)0), second = thread_start(player, (void *)1);
    thread_join(first);
    thread_join(second);
    check("below the lock", area, 3 * MIB, 620);
    check_at("above the lock", area + 4 * MIB, options.data_bytes - 4 * MIB, 620, 4 * MIB);
}

/* Each frame carries a pattern that is checked on the way back. */
static __attribute__((noinline)) void descend(uint64_t depth) {
    uint64_t frame[1024];
    fill((unsigned char *)frame, sizeof frame, 630 + depth);
    __asm__ volatile("" ::: "memory");
    if (depth > 0) descend(depth - 1);
    else sweep();
    check("stack frame", (unsigned char *)frame, sizeof frame, 630 + depth);
}
static void main_stack(void) {
    sweep();
    descend(700); /* about 6 MiB: inside the usual limit of 8 */
    sweep();
    descend(700);
}
static void *deep_thread(void *argument) {
    descend(1500);
    return argument;
}
static void thread_stacks(void) {
    pthread_attr_t attributes;
    EXPECT(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, 16 * MIB) == 0);
    for (int round = 0; round < 3; round++) {
        pthread_t thread;
        EXPECT(pthread_create(&thread, &attributes, deep_thread, NULL) == 0);
        thread_join(thread);
    }
}

/* A thread that ends writes to its own control block last, from inside the kernel, which waits for no page then: the block must not leave,
 * however long it is idle. (Whoever joins the thread would wait for ever.) Its address is what pthread_t is, in glibc and musl. */
enum { SLEEPERS = 4 };
static void *sleeper(void *argument) {
    unsigned char frame[MIB];
    char byte;
    fill(frame, sizeof frame, 640);
    EXPECT(read((int)(uintptr_t)argument, &byte, 1) == 0);
    check("the stack of one that slept", frame, sizeof frame, 640);
    return argument;
}
static void control_blocks(void) {
    int ends[2];
    pthread_t threads[SLEEPERS];
    area = area_new(16 * MIB);
    for (int round = 0; round < 2; round++) { /* the second time on stacks that were used before */
        EXPECT(pipe(ends) == 0);
        for (int i = 1; i < SLEEPERS; i++) threads[i] = thread_start(sleeper, (void *)(uintptr_t)ends[0]);
        /* One has a stack of the program's own, in the middle of other memory. */
        pthread_attr_t attributes;
        EXPECT(pthread_attr_init(&attributes) == 0);
        EXPECT(pthread_attr_setstack(&attributes, area + 4 * MIB, 4 * MIB) == 0);
        EXPECT(pthread_create(&threads[0], &attributes, sleeper, (void *)(uintptr_t)ends[0]) == 0);
        for (int i = 0; i < 3; i++) sweep();
        for (int i = 0; i < SLEEPERS; i++) {
            unsigned char present;
            EXPECT(mincore((void *)(threads[i] & ~(PAGE_BYTES - 1)), PAGE_BYTES, &present) == 0);
            if ((present & 1) == 0) fail(false, "the control block of a thread is away");
        }
        EXPECT(close(ends[1]) == 0);
        for (int i = 0; i < SLEEPERS; i++) thread_join(threads[i]);
        EXPECT(close(ends[0]) == 0);
    }
}

/* Threads that live for a moment, while pages leave all the time. */
static volatile bool stop;
static void *presser(void *argument) {
    while (!stop) sweep();
    return argument;
}
static void *moment(void *argument) {
    unsigned char frame[8 * PAGE_BYTES];
    fill(frame, sizeof frame, 650);
    check("a short life", frame, sizeof frame, 650);
    return argument;
}
static void short_threads(void) {
    pthread_t busy = thread_start(presser, NULL);
    for (int round = 0; round < 2000; round++) {
        pthread_t threads[2];
        for (int i = 0; i < 2; i++) threads[i] = thread_start(moment, NULL);
        for (int i = 0; i < 2; i++) thread_join(threads[i]);
    }
    stop = true;
    thread_join(busy);
}

/* Only a process that shares its working directory with nobody may go to another mount namespace. */
static void mount_namespace(void) {
    area = area_new(options.data_bytes);
    fill(area, options.data_bytes, 660);
    sweep();
    int here = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    EXPECT(here >= 0);
    if (setns(here, CLONE_NEWNS) != 0) {
        if (errno == EPERM) skip("namespaces are not permitted here");
        fail(true, "setns");
    }
    sweep();
    check("after setns", area, options.data_bytes, 660);
}

const struct trap traps_thread[] = {
    {"thread_churn", churn, "192 threads, four at a time", 0},
    {"thread_same_pages", same_pages, "four threads fault on the same pages at once", 0},
    {"thread_interleaved", interleaved_words, "two threads write words of the same pages", 0},
    {"futexes", futexes, "locks and conditions in pages that are away", 0},
    {"stack_main", main_stack, "the main stack grows deep", 0},
    {"thread_blocks", control_blocks, "what threads end with stays", 0},
    {"thread_moments", short_threads, "4,000 threads, two at a time, while pages leave", 0},
    {"mount_namespace", mount_namespace, "setns to the mount namespace that it is in", 0},
    {"stack_threads", thread_stacks, "thread stacks grow deep", 0},
    {NULL, NULL, NULL, 0},
};
