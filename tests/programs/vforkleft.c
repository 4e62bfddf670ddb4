// A child that was made by vfork has its parent's memory, and outlives it: another thread of the parent ends the process while the child has not executed anything
// yet. What it reads then is what its parent wrote, though most of that is away.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 24 * 1024 };
static unsigned char *memory;

static void wait_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static void *child(void *unused) {
    (void)unused;
    if (vfork() == 0) {
        wait_ms(400);
        long wrong = 0;
        for (long page = 0; page < PAGES; page++)
            wrong += memory[page * PAGE] != 1 + page % 251;
        const char *said = wrong ? "wrong\n" : "right\n";
        _exit(write(1, said, 6) == 6 && !wrong ? 0 : 3);
    }
    return NULL;
}

int main(void) {
    memory = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 1;
    for (long page = 0; page < PAGES; page++)
        memory[page * PAGE] = (unsigned char)(1 + page % 251);
    wait_ms(200);
    pthread_t thread;
    if (pthread_create(&thread, NULL, child, NULL) != 0)
        return 1;
    wait_ms(100);
    _exit(0);
}
