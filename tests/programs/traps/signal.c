/* Signals that arrive in the middle of faults, with handlers that fault themselves. */
#include "traps.h"
#include <sys/time.h>

static unsigned char *area;
static volatile sig_atomic_t fired;
static uint64_t place;

static void prepare(uint64_t seed) {
    area = area_new(options.data_bytes);
    fill(area, options.data_bytes, seed);
    sweep();
}

/* Checks one page at a place that differs each time. */
static void touch_page(uint64_t seed) {
    place = splitmix64(place);
    size_t at = place % (options.data_bytes / PAGE_BYTES) * PAGE_BYTES;
    check_at("in a signal handler", area + at, PAGE_BYTES, seed, at);
    fill_at(area + at, PAGE_BYTES, seed, at);
}

static void on_own_stack(int signal) {
    (void)signal;
    unsigned char local[8192];
    fill(local, sizeof local, 701);
    for (int i = 0; i < 8; i++) touch_page(700);
    check("stack of the handler", local, sizeof local, 701);
    fired++;
}
static void alternate_stack(void) {
    prepare(700);
    stack_t stack = {.ss_sp = area_new(4 * MIB), .ss_size = 4 * MIB}; /* large enough that it may be taken away too */
    EXPECT(sigaltstack(&stack, NULL) == 0);
    struct sigaction action = {.sa_handler = on_own_stack, .sa_flags = SA_ONSTACK};
    EXPECT(sigaction(SIGUSR1, &action, NULL) == 0);
    for (int round = 0; round < 300; round++) {
        EXPECT(raise(SIGUSR1) == 0);
        if (round % 50 == 0) sweep();
    }
    EXPECT(fired == 300);
    check("at the end", area, options.data_bytes, 700);
}

static void on_timer(int signal) {
    (void)signal;
    touch_page(710);
    fired++;
}
/* The timer fires all the time; it replaces the alarm that bounds a trap, so the handler's count does that. */
static void timer_storm(void) {
    prepare(710);
    struct sigaction action = {.sa_handler = on_timer, .sa_flags = SA_RESTART};
    EXPECT(sigaction(SIGVTALRM, &action, NULL) == 0 && sigaction(SIGPROF, &action, NULL) == 0);
    EXPECT(sigaction(SIGALRM, &action, NULL) == 0);
    alarm(0);
    pid_t watchdog = fork(); /* ends this process if it hangs */
    EXPECT(watchdog >= 0);
    if (watchdog == 0) {
        pid_t parent = getppid();
        signal(SIGALRM, SIG_DFL);
        for (unsigned s = 0; s < options.limit_s && getppid() == parent; s++) sleep(1);
        if (getppid() == parent) kill(parent, SIGKILL);
        _exit(0);
    }
    struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    EXPECT(setitimer(ITIMER_REAL, &often, NULL) == 0 && setitimer(ITIMER_VIRTUAL, &often, NULL) == 0);
    for (int round = 0; round < 4; round++) {
        sweep();
        /* Not by fill: the handler rewrites pages with the same contents, so this checks and changes nothing. */
        check("under timers", area, options.data_bytes, 710);
    }
    EXPECT(setitimer(ITIMER_REAL, &never, NULL) == 0 && setitimer(ITIMER_VIRTUAL, &never, NULL) == 0);
    EXPECT(kill(watchdog, SIGKILL) == 0 && waitpid(watchdog, NULL, 0) == watchdog);
    EXPECT(fired > 20);
}

/* Signals sent by another process, blocked and unblocked around faults. */
static void on_sent(int signal) {
    (void)signal;
    fired++;
    touch_page(720);
}
static void sender_body(void *unused) {
    (void)unused;
    pid_t parent = getppid();
    for (int i = 0; i < 400; i++) {
        if (kill(parent, SIGUSR2) != 0) return;
        usleep(1000);
    }
}
static void sent(void) {
    struct sigaction action = {.sa_handler = on_sent, .sa_flags = SA_RESTART};
    EXPECT(sigaction(SIGUSR2, &action, NULL) == 0);
    prepare(720);
    sigset_t set;
    EXPECT(sigemptyset(&set) == 0 && sigaddset(&set, SIGUSR2) == 0);
    pid_t pid = child_start(sender_body, NULL);
    for (int round = 0; round < 4; round++) {
        EXPECT(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
        sig_atomic_t before = fired;
        check("while blocked", area, options.data_bytes, 720);
        EXPECT(fired == before);
        EXPECT(sigprocmask(SIG_UNBLOCK, &set, NULL) == 0);
        sweep();
    }
    child_join(pid);
    EXPECT(fired > 0);
    check("at the end", area, options.data_bytes, 720);
}

const struct trap traps_signal[] = {
    {"sigaltstack", alternate_stack, "a handler on its own stack touches pages that are away", 0},
    {"timer_storm", timer_storm, "timers fire all the time", 0},
    {"signals_sent", sent, "another process sends signals; blocked and unblocked", 0},
    {NULL, NULL, NULL, 0},
};
