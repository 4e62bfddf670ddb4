/* A program to be paged: does what it is told on stdin, one line each, and answers with one line. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096u
#define WORDS (PAGE / 8)
static uint64_t *area;
static size_t pages;

static uint64_t pattern(size_t page, size_t word, uint64_t seed) {
    uint64_t x = (page * WORDS + word + 1) * 0x9E3779B97F4A7C15u + seed;
    return x ^ (x >> 29);
}
static void fill(uint64_t seed) {
    for (size_t p = 0; p < pages; p++)
        for (size_t w = 0; w < WORDS; w++) area[p * WORDS + w] = pattern(p, w, seed);
}
/* -1: all as filled; else the first page that is not. */
static long check(uint64_t seed) {
    for (size_t p = 0; p < pages; p++)
        for (size_t w = 0; w < WORDS; w++)
            if (area[p * WORDS + w] != pattern(p, w, seed)) return (long)p;
    return -1;
}
static void say(const char *what, long number) {
    char line[128];
    int n = snprintf(line, sizeof line, "%s %ld\n", what, number);
    if (write(1, line, (size_t)n) != n) _exit(3);
}
/* In a forked child: what it inherited, then its own writing; before that, children of its own, `depth` deep. */
static void child(int depth) {
    int status = 0;
    for (; depth > 0; depth--) {
        if (check(0) != -1) _exit(1);
        pid_t pid = fork();
        if (pid == 0) continue;
        waitpid(pid, &status, 0);
        break;
    }
    if (status != 0) _exit(2);
    if (check(0) != -1) _exit(1);
    fill(7);
    if (check(7) != -1) _exit(4);
    _exit(0);
}
static atomic_int stop;
static void *churn(void *argument) {
    /* Each thread owns every second page: counts up random words of it and compares with a copy. */
    size_t mine = (size_t)argument;
    uint32_t *copy = calloc(pages, sizeof *copy);
    uint64_t random = 88172645463325252u + mine, bad = 0;
    for (size_t p = mine; p < pages; p += 2) area[p * WORDS] = 0;
    while (!stop) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        size_t p = (random % (pages / 2)) * 2 + mine;
        if (area[p * WORDS] != copy[p]) bad++;
        area[p * WORDS] = ++copy[p];
    }
    for (size_t p = mine; p < pages; p += 2) {
        if (area[p * WORDS] != copy[p]) bad++;
        area[p * WORDS] = pattern(p, 0, 0);
    }
    free(copy);
    return (void *)bad;
}
static void *sleeper(void *nothing) {
    for (;;) pause();
    return nothing;
}
static long open_descriptors(void) {
    DIR *directory = opendir("/proc/self/fd");
    long count = 0;
    while (readdir(directory)) count++;
    closedir(directory);
    return count - 3;
}
int main(int argc, char **argv) {
    char line[256];
    (void)argc;
    setvbuf(stdin, NULL, _IONBF, 0);
    say("hello", open_descriptors());
    while (fgets(line, sizeof line, stdin)) {
        size_t a = 0, b = 0;
        char word[32] = "";
        sscanf(line, "%31s %zu %zu", word, &a, &b);
        if (!strcmp(word, "fill")) {
            pages = a;
            area = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            madvise(area, pages * PAGE, MADV_NOHUGEPAGE);
            fill(0);
            say("area", (long)area);
        } else if (!strcmp(word, "check")) {
            say("check", check(0));
        } else if (!strcmp(word, "refill")) {
            fill(0);
            say("refilled", 0);
        } else if (!strcmp(word, "fork")) {
            pid_t pid = fork();
            if (pid == 0) child((int)a);
            int status = -1;
            waitpid(pid, &status, 0);
            say("status", status);
        } else if (!strcmp(word, "hold")) {
            pid_t pid = fork();
            if (pid == 0) {
                pause();
                _exit(0);
            }
            say("pid", pid);
        } else if (!strcmp(word, "reap")) {
            kill((pid_t)a, SIGKILL);
            waitpid((pid_t)a, NULL, 0);
            say("reaped", 0);
        } else if (!strcmp(word, "closefds")) {
            say("closed", syscall(SYS_close_range, 3, ~0u, 0));
        } else if (!strcmp(word, "dontneed")) {
            say("dontneed", madvise(area + a * WORDS, b * PAGE, MADV_DONTNEED));
        } else if (!strcmp(word, "protect")) {
            say("protect", mprotect(area + a * WORDS, b * PAGE, PROT_READ));
        } else if (!strcmp(word, "guard")) {
            /* By the call itself: the shim would discard what is there as well. */
            say("guard", syscall(SYS_madvise, area + a * WORDS, b * PAGE, 102) ? errno : 0);
        } else if (!strcmp(word, "grow")) {
            /* By as many pages: more than it has room for where it is, most likely. */
            uint64_t *there = mremap(area, pages * PAGE, a * PAGE, MREMAP_MAYMOVE);
            say("grow", there == MAP_FAILED ? errno : 0);
            if (there != MAP_FAILED) area = there;
        } else if (!strcmp(word, "wipe")) {
            say("wipe", madvise(area + a * WORDS, b * PAGE, MADV_WIPEONFORK));
        } else if (!strcmp(word, "register")) {
            int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
            struct uffdio_api api = {.api = UFFD_API};
            struct uffdio_register range = {
                .range = {.start = (uintptr_t)(area + a * WORDS), .len = b * PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
            long answer = ioctl(fd, UFFDIO_API, &api);
            say("registered", answer ? answer : ioctl(fd, UFFDIO_REGISTER, &range));
        } else if (!strcmp(word, "badioctl")) {
            errno = 0;
            long answer = ioctl(-1, UFFDIO_REGISTER, 1);
            say("badioctl", answer == -1 ? errno : 0);
        } else if (!strcmp(word, "errno")) {
            char more[2];
            errno = 77;
            if (write(1, "errno 0\n", 8) != 8 || read(0, more, 1) != 1) _exit(3);
            say("errno", errno);
        } else if (!strcmp(word, "churn")) {
            pthread_t threads[2];
            void *bad[2];
            struct timespec time = {.tv_sec = (time_t)(a / 1000), .tv_nsec = (long)(a % 1000) * 1000000};
            stop = 0;
            for (size_t i = 0; i < 2; i++) pthread_create(&threads[i], NULL, churn, (void *)i);
            nanosleep(&time, NULL);
            stop = 1;
            for (size_t i = 0; i < 2; i++) pthread_join(threads[i], &bad[i]);
            say("churned", (long)bad[0] + (long)bad[1]);
        } else if (!strcmp(word, "spin")) {
            say("spinning", 0);
            for (volatile uint64_t i = 0;; i++) {}
        } else if (!strcmp(word, "unshare")) {
            say("unshare", unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID) ? errno : 0);
        } else if (!strcmp(word, "unshare_threaded")) {
            pthread_t thread;
            pthread_create(&thread, NULL, sleeper, NULL);
            say("unshare", unshare(CLONE_NEWUSER) ? errno : 0);
        } else if (!strcmp(word, "setns")) {
            int fd = open("/proc/self/ns/user", O_RDONLY);
            say("setns", setns(fd, 0) ? errno : 0);
            close(fd);
        } else if (!strcmp(word, "setns_other")) {
            int ready[2];
            if (pipe(ready)) _exit(6);
            pid_t pid = fork();
            if (pid == 0) {
                char done = unshare(CLONE_NEWUSER) ? 'n' : 'y';
                if (write(ready[1], &done, 1) != 1) _exit(7);
                for (;;) pause();
            }
            char done = 'n', path[64];
            if (read(ready[0], &done, 1) != 1 || done != 'y') _exit(8);
            snprintf(path, sizeof path, "/proc/%d/ns/user", (int)pid);
            int fd = open(path, O_RDONLY);
            say("setns", setns(fd, a ? CLONE_NEWUSER : 0) ? errno : 0);
            kill(pid, SIGKILL);
            waitpid(pid, NULL, 0);
            close(fd), close(ready[0]), close(ready[1]);
        } else if (!strcmp(word, "open")) {
            say("open", open_descriptors());
        } else if (!strcmp(word, "exec")) {
            execv(argv[0], argv);
            _exit(5);
        } else if (!strcmp(word, "abort")) {
            abort();
        } else if (!strcmp(word, "leave")) {
            pthread_exit(NULL);
        } else {
            say("unknown", 0);
        }
    }
    return 42;
}
