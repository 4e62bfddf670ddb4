// slowstart BEFORE_MS AFTER_MS: sleeps before any library has been started, as a program does that has hundreds of them, and again when it runs.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void sleep_ms(const char *text) {
    long ms = atol(text);
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static void before(int argc, char **argv, char **environment) {
    (void)environment;
    if (argc == 3) sleep_ms(argv[1]);
}

__attribute__((section(".preinit_array"), used)) static void (*const first)(int, char **, char **) = before;

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    sleep_ms(argv[2]);
    puts("started");
    return 0;
}
