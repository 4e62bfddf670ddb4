/* Processes that leave their memory to execute another program, while threads of theirs still fill it and pages are taken out of it:
 * execs MIB ROUNDS. The first process has MIB of memory and goes over it all the time; two children at once, ROUNDS in all, fill as much with
 * two threads each and execute /bin/true in the middle. What is wrong is told. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORDS = 4096 / 8, THREADS = 2 };

static uint64_t pages;
static volatile uint64_t *private;

static void *fill(void *which) {
    for (uint64_t turn = 1;; turn++)
        for (uint64_t page = (uintptr_t)which; page < pages; page += THREADS)
            private[page * WORDS] = page + turn;
    return 0;
}

static void child(unsigned round) {
    private = malloc(pages * 4096);
    for (uintptr_t which = 0; which < THREADS; which++) {
        pthread_t thread;
        if (pthread_create(&thread, 0, fill, (void *)which))
            _exit(2);
    }
    /* Some while they begin to fill it, others when it is full and leaves. */
    struct timespec pause = {0, (20 + round * 37 % 180) * 1000000};
    nanosleep(&pause, 0);
    execl("/bin/true", "true", (char *)0);
    _exit(2);
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: execs MIB ROUNDS\n");
        return 2;
    }
    pages = strtoull(argv[1], 0, 10) << 8;
    unsigned rounds = atoi(argv[2]), wrong = 0;
    volatile uint64_t *memory = malloc(pages * 4096);
    for (uint64_t page = 0; page < pages; page++)
        memory[page * WORDS] = page * 3 + 1;
    for (unsigned begun = 0, ended = 0; ended < rounds;) {
        for (; begun < rounds && begun < ended + 2; begun++) {
            pid_t pid = fork();
            if (pid < 0)
                return 2;
            if (pid == 0)
                child(begun);
        }
        for (uint64_t page = 0; page < pages; page++)
            wrong += memory[page * WORDS] != page * 3 + 1;
        for (int status; ended < begun && waitpid(-1, &status, WNOHANG) > 0; ended++)
            if (status)
                printf("a child ended with %d\n", status);
    }
    printf("%u ended, %u wrong\n", rounds, wrong);
    return wrong != 0;
}
