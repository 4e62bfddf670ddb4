/* New programs in the middle of a run, and the ways in which a process ends or loses its descriptors. */
#include "traps.h"
#include <sys/resource.h>
#include <sys/syscall.h>

static unsigned char *area;

static void prepare(uint64_t seed) {
    area = area_new(options.data_bytes);
    fill(area, options.data_bytes, seed);
    sweep();
}

/* Not listed by name in the issue: what the spawned and vforked children run. */
static void child_program(void) {
    prepare(options.seed);
    check("spawned program", area, options.data_bytes, options.seed);
}

static void spawned(void) {
    prepare(200);
    pid_t pids[3];
    for (int i = 0; i < 3; i++) {
        char *arguments[SELF_ARGUMENTS];
        size_t data = options.data_bytes, ballast = options.ballast_bytes;
        options.data_bytes = options.ballast_bytes = 8 * MIB;
        self_arguments(arguments, "child_program", 0, 201 + (uint64_t)i);
        options.data_bytes = data, options.ballast_bytes = ballast;
        pids[i] = self_spawn(arguments);
    }
    sweep();
    check("parent beside spawned programs", area, options.data_bytes, 200);
    for (int i = 0; i < 3; i++) child_join(pids[i]);
    check("parent after them", area, options.data_bytes, 200);
}

static void vforked(void) {
    prepare(210);
    char *arguments[] = {"true", NULL};
    for (int round = 0; round < 20; round++) {
        /* Between vfork and exec the child works in the parent's memory: pages that are away are fetched there too. */
        size_t at = options.data_bytes / 2 + (size_t)round * (options.data_bytes / 64);
        volatile uint64_t expected = pattern(210, at);
        pid_t pid = vfork();
        EXPECT(pid >= 0);
        if (pid == 0) {
            uint64_t got = *(volatile uint64_t *)(area + at);
            if (got != expected) _exit(3);
            if (round % 2 == 0) execv("/bin/true", arguments);
            _exit(round % 2 == 0 ? 4 : 0);
        }
        child_join(pid);
        if (round % 5 == 0) sweep();
    }
    check("parent after vfork", area, options.data_bytes, 210);
}

/* Four programs one after the other in one process; what each knows comes through its arguments. */
static void self_exec(void) {
    prepare(220 + options.seed);
    check("this stage", area, options.data_bytes, 220 + options.seed);
    if (options.stage == 3) {
        EXPECT(options.seed == 1 + 3 * 7);
        return;
    }
    char *arguments[SELF_ARGUMENTS];
    self_arguments(arguments, options.name, options.stage + 1, options.seed + 7);
    fflush(NULL);
    execv("/proc/self/exe", arguments);
    fail(true, "execv");
}

static void *noise(void *argument) {
    for (;;) sweep();
    return argument;
}
/* exec while another thread is in the middle of faults. */
static void exec_threads(void) {
    prepare(230);
    if (options.stage == 3) {
        check("after three execs", area, options.data_bytes, 230);
        return;
    }
    thread_start(noise, NULL);
    usleep(100000);
    char *arguments[SELF_ARGUMENTS];
    self_arguments(arguments, options.name, options.stage + 1, options.seed);
    execv("/proc/self/exe", arguments);
    fail(true, "execv");
}

static void *last_thread(void *argument) {
    usleep(50000);
    sweep();
    check("after main has left", area, options.data_bytes, 240);
    printf("ok %s\n", options.name);
    fflush(stdout);
    return argument; /* nobody is left: the process ends with status 0 */
}
static void main_leaves(void) {
    prepare(240);
    thread_start(last_thread, NULL);
    pthread_exit(NULL);
}
static void leaves_body(void *unused) {
    (void)unused;
    sweep();
    check("child whose main thread leaves", area, options.data_bytes, 250);
    pthread_exit(NULL);
}
static void forked_main_leaves(void) {
    prepare(250);
    child_join(child_start(leaves_body, NULL));
    check("parent", area, options.data_bytes, 250);
}

static void close_all_range(void) {
    prepare(260);
    EXPECT(close_range(3, ~0u, 0) == 0);
    for (int round = 0; round < 3; round++) {
        sweep();
        check("after close_range", area, options.data_bytes, 260);
    }
}
static void close_each(void) {
    prepare(270);
    for (int fd = 3; fd < 1024; fd++) close(fd);
    for (int round = 0; round < 3; round++) {
        sweep();
        check("after closing each", area, options.data_bytes, 270);
    }
}
static void daemon_body(void *unused) {
    (void)unused;
    sweep();
    check("daemon's child", area, options.data_bytes, 280);
}
/* What a daemon does: fork, setsid, close everything, fork again. */
static void daemon_way(void) {
    prepare(280);
    pid_t pid = fork();
    EXPECT(pid >= 0);
    if (pid == 0) {
        alarm(options.limit_s);
        EXPECT(setsid() >= 0);
        EXPECT(close_range(3, ~0u, 0) == 0);
        check("daemon", area, options.data_bytes, 280);
        child_join(child_start(daemon_body, NULL));
        sweep();
        check("daemon after its child", area, options.data_bytes, 280);
        _exit(0);
    }
    sweep();
    child_join(pid);
    check("starter", area, options.data_bytes, 280);
}

static void abort_core(void) {
    prepare(290);
    /* Large enough to hold pages that are away, small enough for any disk. */
    struct rlimit limit;
    EXPECT(getrlimit(RLIMIT_CORE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max < 64 * MIB ? limit.rlim_max : 64 * MIB;
    EXPECT(setrlimit(RLIMIT_CORE, &limit) == 0);
    EXPECT(chdir(options.dir) == 0);
    check("before the end", area, options.data_bytes, 290);
    sweep();
    abort();
}

const struct trap traps_exec[] = {
    {"posix_spawn", spawned, "three programs spawned at once", 0},
    {"child_program", child_program, "what the spawned ones are", 0},
    {"vfork", vforked, "vfork, with exec and with _exit", 0},
    {"exec_self", self_exec, "four programs in one process, one after the other", 0},
    {"exec_threads", exec_threads, "exec while another thread faults", 0},
    {"main_pthread_exit", main_leaves, "the main thread leaves first, the last thread just returns", 0},
    {"fork_pthread_exit", forked_main_leaves, "a forked child's only thread leaves by pthread_exit", 0},
    {"close_range", close_all_range, "all descriptors above 2 closed at once", 0},
    {"close_each", close_each, "all descriptors above 2 closed one by one", 0},
    {"daemon", daemon_way, "fork, setsid, close everything, fork", 0},
    {"abort_core", abort_core, "abort with a core dump while pages are away", SIGABRT},
    {NULL, NULL, NULL, 0},
};
