/* peak: runs a program and writes the largest resident memory of it or any one of its children, in KiB, and the wall
 * time in milliseconds.
 *
 *     peak OUTFILE PROGRAM ARGS...
 *
 * Ends as the program ended. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: peak OUTFILE PROGRAM ARGS...\n");
        return 2;
    }
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    pid_t pid = fork();
    if (pid < 0) {
        perror("peak: fork");
        return 2;
    }
    if (pid == 0) {
        execvp(argv[2], argv + 2);
        fprintf(stderr, "peak: %s: %s\n", argv[2], strerror(errno));
        _exit(127);
    }
    /* Signals for the whole group reach the program by themselves. */
    signal(SIGINT, SIG_IGN);
    int status;
    while (waitpid(pid, &status, 0) != pid)
        if (errno != EINTR) return 2;
    clock_gettime(CLOCK_MONOTONIC, &end);
    struct rusage usage;
    getrusage(RUSAGE_CHILDREN, &usage);
    FILE *out = fopen(argv[1], "w");
    long wall_ms = (end.tv_sec - start.tv_sec) * 1000 + (end.tv_nsec - start.tv_nsec) / 1000000;
    if (out == NULL || fprintf(out, "%ld %ld\n", usage.ru_maxrss, wall_ms) < 0 || fclose(out) != 0) {
        fprintf(stderr, "peak: %s: %s\n", argv[1], strerror(errno));
        return 2;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
