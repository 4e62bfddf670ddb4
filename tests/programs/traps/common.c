/* Patterns, ballast, children: see traps.h. */
#include "traps.h"
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>

extern char **environ;
struct options options;

void fail(bool with_errno, const char *format, ...) {
    int saved_errno = errno;
    char line[512];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    fprintf(stderr, "traps: %s: pid %d: %s%s%s\n", options.name, (int)getpid(), line, with_errno ? ": errno " : "",
            with_errno ? strerror(saved_errno) : "");
    fflush(stderr);
    _exit(1);
}

void skip(const char *why) {
    printf("skip %s: %s\n", options.name, why);
    fflush(stdout);
    _exit(0);
}

uint64_t splitmix64(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t pattern(uint64_t seed, size_t offset_bytes) {
    /* Never zero, so that a page that came back as zeros cannot pass. */
    return splitmix64(seed * 0x2545f4914f6cdd1du + offset_bytes / 8) | 1;
}

unsigned char *area_new(size_t bytes) {
    void *area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(area != MAP_FAILED);
    return area;
}

void fill_at(unsigned char *at, size_t bytes, uint64_t seed, size_t offset_bytes) {
    uint64_t *words = (uint64_t *)at;
    for (size_t i = 0; i < bytes / 8; i++) words[i] = pattern(seed, offset_bytes + 8 * i);
}

void fill(unsigned char *area, size_t bytes, uint64_t seed) { fill_at(area, bytes, seed, 0); }

void check_at(const char *what, const unsigned char *at, size_t bytes, uint64_t seed, size_t offset_bytes) {
    const volatile uint64_t *words = (const volatile uint64_t *)at;
    for (size_t i = 0; i < bytes / 8; i++) {
        uint64_t got = words[i], expected = pattern(seed, offset_bytes + 8 * i);
        if (got != expected)
            fail(false, "%s: offset %zu (address %p): expected %016llx, got %016llx, read again %016llx", what,
                 offset_bytes + 8 * i, (void *)&words[i], (unsigned long long)expected, (unsigned long long)got,
                 (unsigned long long)words[i]);
    }
}

void check(const char *what, const unsigned char *area, size_t bytes, uint64_t seed) {
    check_at(what, area, bytes, seed, 0);
}

void check_zero(const char *what, const unsigned char *at, size_t bytes) {
    const volatile uint64_t *words = (const volatile uint64_t *)at;
    for (size_t i = 0; i < bytes / 8; i++) {
        uint64_t got = words[i];
        if (got != 0)
            fail(false, "%s: offset %zu (address %p): expected zeros, got %016llx", what, 8 * i, (void *)&words[i],
                 (unsigned long long)got);
    }
}

void sweep(void) {
    static unsigned char *ballast;
    static uint64_t generation;
    if (ballast == NULL)
        ballast = area_new(options.ballast_bytes);
    else
        check("ballast", ballast, options.ballast_bytes, 0xba11a57 + generation);
    generation++;
    fill(ballast, options.ballast_bytes, 0xba11a57 + generation);
}

pid_t child_start(void (*body)(void *), void *argument) {
    fflush(NULL);
    pid_t pid = fork();
    EXPECT(pid >= 0);
    if (pid == 0) {
        alarm(options.limit_s); /* fork clears it */
        body(argument);
        fflush(NULL);
        _exit(0);
    }
    return pid;
}

void child_join(pid_t pid) {
    int status;
    pid_t got;
    do got = waitpid(pid, &status, 0);
    while (got < 0 && errno == EINTR);
    EXPECT(got == pid);
    if (WIFSIGNALED(status)) fail(false, "child %d was ended by signal %d", (int)pid, WTERMSIG(status));
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail(false, "child %d ended with status %d", (int)pid, WEXITSTATUS(status));
}

void self_arguments(char *arguments[SELF_ARGUMENTS], const char *name, int stage, uint64_t seed) {
    /* Lives as long as the process: exec and spawn read it later. */
    static __thread char text[4][32];
    snprintf(text[0], sizeof text[0], "%zu", (options.data_bytes + options.ballast_bytes) / MIB);
    snprintf(text[1], sizeof text[1], "%d", stage);
    snprintf(text[2], sizeof text[2], "%llu", (unsigned long long)seed);
    snprintf(text[3], sizeof text[3], "%u", options.limit_s);
    char *const all[] = {"traps",   (char *)name, "--mib",   text[0],   "--stage", text[1],
                         "--seed",  text[2],      "--limit", text[3],   "--dir",   (char *)options.dir, NULL};
    _Static_assert(sizeof all / sizeof all[0] <= SELF_ARGUMENTS, "too many arguments");
    memcpy(arguments, all, sizeof all);
}

pid_t self_spawn(char *const arguments[]) {
    pid_t pid;
    fflush(NULL);
    int error = posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, environ);
    if (error != 0) fail(false, "posix_spawn: %s", strerror(error));
    return pid;
}

pthread_t thread_start(void *(*body)(void *), void *argument) {
    pthread_t thread;
    int error = pthread_create(&thread, NULL, body, argument);
    if (error != 0) fail(false, "pthread_create: %s", strerror(error));
    return thread;
}

void thread_join(pthread_t thread) {
    int error = pthread_join(thread, NULL);
    if (error != 0) fail(false, "pthread_join: %s", strerror(error));
}

int file_new(int extra_flags) {
    char path[4096];
    static unsigned count;
    snprintf(path, sizeof path, "%s/traps-%d-%u", options.dir, (int)getpid(), count++);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | extra_flags, 0600);
    if (fd < 0 && errno == EINVAL && (extra_flags & O_DIRECT)) {
        unlink(path);
        skip("the file system of --dir has no O_DIRECT");
    }
    if (fd < 0) fail(true, "open %s", path);
    EXPECT(unlink(path) == 0);
    return fd;
}
