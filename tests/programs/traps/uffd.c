/* A program that uses userfaultfd by itself, on memory of its own. */
#include "traps.h"
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

static int uffd;
static unsigned char *mine;
static size_t mine_bytes;
static volatile bool stop;

/* Serves faults on `mine` with the pattern 800. */
static void *server(void *argument) {
    unsigned char *page = area_new(PAGE_BYTES);
    while (!stop) {
        struct pollfd wait = {.fd = uffd, .events = POLLIN};
        int ready = poll(&wait, 1, 20);
        EXPECT(ready >= 0);
        if (ready == 0) continue;
        struct uffd_msg message;
        ssize_t got = read(uffd, &message, sizeof message);
        if (got < 0 && errno == EAGAIN) continue;
        EXPECT(got == (ssize_t)sizeof message && message.event == UFFD_EVENT_PAGEFAULT);
        size_t at = (message.arg.pagefault.address & ~(PAGE_BYTES - 1)) - (uintptr_t)mine;
        EXPECT(at < mine_bytes);
        fill_at(page, PAGE_BYTES, 800, at);
        struct uffdio_copy copy = {.dst = (uintptr_t)mine + at, .src = (uintptr_t)page, .len = PAGE_BYTES};
        if (ioctl(uffd, UFFDIO_COPY, &copy) != 0 && errno != EEXIST) fail(true, "UFFDIO_COPY");
    }
    return argument;
}

static bool open_uffd(void) {
    uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    if (uffd < 0) return false;
    struct uffdio_api api = {.api = UFFD_API};
    EXPECT(ioctl(uffd, UFFDIO_API, &api) == 0);
    return true;
}

static void serve_and_release(void) {
    struct uffdio_register range = {.range = {(uintptr_t)mine, mine_bytes}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (ioctl(uffd, UFFDIO_REGISTER, &range) != 0) fail(true, "UFFDIO_REGISTER on the program's own memory");
    stop = false;
    pthread_t thread = thread_start(server, NULL);
    sweep();
    check("served by the program itself", mine, mine_bytes, 800);
    sweep();
    check("served by the program itself, again", mine, mine_bytes, 800);
    stop = true;
    thread_join(thread);
    EXPECT(ioctl(uffd, UFFDIO_UNREGISTER, &range.range) == 0);
    sweep();
    check("after UFFDIO_UNREGISTER", mine, mine_bytes, 800);
}

static void fresh(void) {
    if (!open_uffd()) skip("userfaultfd is not permitted here");
    mine_bytes = 4 * MIB;
    mine = area_new(mine_bytes);
    unsigned char *area = area_new(options.data_bytes);
    fill(area, options.data_bytes, 801);
    sweep();
    serve_and_release();
    check("other memory", area, options.data_bytes, 801);
}

/* The range was in use, and away, before the program claims it. */
static void used(void) {
    if (!open_uffd()) skip("userfaultfd is not permitted here");
    mine_bytes = 4 * MIB;
    unsigned char *area = area_new(options.data_bytes);
    fill(area, options.data_bytes, 800);
    mine = area + 8 * MIB;
    fill_at(mine, mine_bytes, 800, 0);
    sweep();
    serve_and_release();
    check("below", area, 8 * MIB, 800);
    check_at("above", area + 12 * MIB, options.data_bytes - 12 * MIB, 800, 12 * MIB);
}

const struct trap traps_uffd[] = {
    {"uffd_own", fresh, "the program's own userfaultfd on fresh memory", 0},
    {"uffd_used", used, "the program's own userfaultfd on memory that was in use", 0},
    {NULL, NULL, NULL, 0},
};
