// A child that was made by vfork has its parent's memory, and outlives it: another thread of the parent ends the process while the child has not executed anything
// yet. What it reads then is what its parent wrote, though most of that is away.
//
// vforkleft MICROSECONDS ROUNDS: each round's parent ends so many microseconds times the round after the child was made, while its memory may still be leaving.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 14 * 1024 };
static unsigned char *memory;
static int verdict;
static int made[2];

static void wait_us(long us) {
    struct timespec time = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&time, NULL);
}

static void *child(void *unused) {
    (void)unused;
    if (vfork() == 0) {
        if (write(made[1], "x", 1) != 1)
            _exit(4);
        wait_us(50000);
        long wrong = 0;
        for (long page = 0; page < PAGES; page++)
            wrong += memory[page * PAGE] != 1 + page % 251;
        _exit(write(verdict, wrong ? "w" : "r", 1) == 1 ? 0 : 3);
    }
    return NULL;
}

static void parent(long us) {
    memory = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        _exit(1);
    for (long page = 0; page < PAGES; page++)
        memory[page * PAGE] = (unsigned char)(1 + page % 251);
    pthread_t thread;
    char one;
    if (pipe(made) != 0 || pthread_create(&thread, NULL, child, NULL) != 0 || read(made[0], &one, 1) != 1)
        _exit(1);
    wait_us(us);
    _exit(0);
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    long rounds = atol(argv[2]), right = 0;
    for (long round = 0; round < rounds; round++) {
        int ends[2];
        if (pipe(ends) != 0)
            return 1;
        verdict = ends[1];
        pid_t pid = fork();
        if (pid == 0)
            parent(atol(argv[1]) * round);
        close(ends[1]);
        int status;
        char said = 0;
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
            return 1;
        right += read(ends[0], &said, 1) == 1 && said == 'r';
        close(ends[0]);
    }
    printf("%ld of %ld right\n", right, rounds);
    return 0;
}
