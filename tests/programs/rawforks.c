// Many children made behind libc's back, that live for a moment at the same time; each of them is waited for.
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int wanted = argc > 1 ? atoi(argv[1]) : 0, well = 0;
    for (int n = 0; n < wanted; n++) {
        long child = syscall(SYS_fork);
        if (child < 0)
            return 1;
        if (child == 0) {
            struct timespec moment = {.tv_nsec = 500000000};
            nanosleep(&moment, NULL);
            _exit(0);
        }
    }
    for (int status; wait(&status) > 0;)
        well += status == 0;
    printf("%d ended well\n", well);
    return 0;
}
