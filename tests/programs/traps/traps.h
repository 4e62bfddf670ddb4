/* What every trap uses: areas with a pattern that is known at each place, a ballast that pushes them out, children
 * that are waited for with a limit. A mismatch anywhere ends the process with status 1 and one line that
 * says what, where, expected, got; so a run that ends with 0 has read every byte as it was written. */
#ifndef TRAPS_H
#define TRAPS_H

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE_BYTES ((size_t)4096)
#define MIB ((size_t)1 << 20)

/* What the command line said. */
struct options {
    const char *name;      /* the trap that runs in this process */
    const char *dir;       /* where files may be made */
    size_t data_bytes;     /* half of --mib: the area of the trap */
    size_t ballast_bytes;  /* the other half */
    unsigned limit_s;      /* no process of a trap lives longer */
    int stage;             /* of the traps that exec themselves */
    uint64_t seed;         /* handed on by them */
};
extern struct options options;

/* Ends the process with status 1; adds errno's text where `with_errno`. */
void fail(bool with_errno, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));
/* Ends the process with status 0 and a line that says why nothing was checked. */
void skip(const char *why) __attribute__((noreturn));
/* For conditions that are the trap's own expectation. */
#define EXPECT(condition) \
    do { if (!(condition)) fail(true, "%s:%d: expected %s", __FILE__, __LINE__, #condition); } while (0)

uint64_t splitmix64(uint64_t x);
/* The word that belongs at `offset_bytes` of an area with this seed. */
uint64_t pattern(uint64_t seed, size_t offset_bytes);
/* Fresh private anonymous memory; ends the process if there is none. */
unsigned char *area_new(size_t bytes);
/* Writes the pattern; `offset_bytes` is where `at` lies in its area. Sizes and places are multiples of 8. */
void fill_at(unsigned char *at, size_t bytes, uint64_t seed, size_t offset_bytes);
void fill(unsigned char *area, size_t bytes, uint64_t seed);
/* Reads every word and compares. */
void check_at(const char *what, const unsigned char *at, size_t bytes, uint64_t seed, size_t offset_bytes);
void check(const char *what, const unsigned char *area, size_t bytes, uint64_t seed);
void check_zero(const char *what, const unsigned char *at, size_t bytes);
/* Checks and rewrites the whole ballast of this process: what was used before it has to leave. */
void sweep(void);

/* Forks; the child runs `body(argument)` under its own time limit and exits with 0 if that returns. */
pid_t child_start(void (*body)(void *), void *argument);
/* Waits for it; anything but exit status 0 fails. */
void child_join(pid_t pid);
/* Starts this program again with these arguments after the program's name, by posix_spawn; last one NULL. */
pid_t self_spawn(char *const arguments[]);
/* The arguments that say how large and where, for self_spawn and exec: fills `arguments`, ends with NULL. */
enum { SELF_ARGUMENTS = 16 };
void self_arguments(char *arguments[SELF_ARGUMENTS], const char *name, int stage, uint64_t seed);

/* Threads; failing to make or join one fails the trap. */
pthread_t thread_start(void *(*body)(void *), void *argument);
void thread_join(pthread_t thread);
/* A file of the trap in --dir, already unlinked. */
int file_new(int extra_flags);

struct trap {
    const char *name;
    void (*run)(void);
    const char *what;   /* one line for `traps list` */
    int ends_by_signal; /* what `traps all` expects: 0, or the signal that ends it */
};
extern const struct trap traps_fork[], traps_exec[], traps_map[], traps_mixed[], traps_protect[], traps_io[],
    traps_thread[], traps_signal[], traps_uffd[];

#endif
