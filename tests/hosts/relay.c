/* A slow link between two network namespaces. The program makes a TUN device `slow0` in each, and
 * forwards the packets that are routed into either device to the other one.
 *
 *     relay HOST HOST [--delay US] [--bandwidth BITS_PER_SECOND] [--queue BYTES]
 *
 * HOST is a name of `ip netns`, or a path such as /proc/PID/ns/net. Each direction is a link of its
 * own. A packet leaves it after those before it, with all its bytes at the bandwidth, and arrives
 * the delay later. The bandwidth is that of IP packets as they would be on a wire of MTU 1500:
 * TCP's payload is 1448 of 1500 bytes. Packets that wait for the link are in its queue; one that
 * does not fit into it (default: 4 MiB) is dropped, as a switch does it. 0 (the default) means no
 * delay and no limit of bandwidth.
 *
 * Prints "ready" when the devices exist; their addresses are the caller's to set. Ends with the
 * first signal. Needs the right to administer both namespaces. */
#define _GNU_SOURCE /* setns, ppoll */
#include <errno.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <linux/sockios.h>
#include <linux/virtio_net.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define DEVICE "slow0"

enum {
    /* The header of offloads, and one packet of the largest size, which may stand for many
     * segments of TCP. So a processor that also runs the ranks can fill a fast link. */
    PACKET_BYTES = 10 + 65536,
    PACKETS = 4096, /* in flight in one direction */
    /* The last part of a wait is polled, because a sleeping process wakes up late. */
    SPIN_NS = 60000,
};

typedef struct packet {
    int64_t arrives_ns;
    size_t size;
    uint8_t *bytes; /* [size] */
} packet;

/* One direction: a ring of packets on their way, and when the link has sent the last of them. */
typedef struct way {
    int from, to; /* the devices */
    packet ring[PACKETS];
    unsigned first, count;
    int64_t free_ns;
} way;

typedef struct settings {
    int64_t delay_ns;
    double ns_per_byte;
    double queue_bytes;
} settings;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int fail(const char *what, const char *name)
{
    fprintf(stderr, "relay: cannot %s %s: %s\n", what, name, strerror(errno));
    return -1;
}

/* Lets programs that ask for the device's speed, as UCX does, know it. */
static bool set_speed(double ns_per_byte)
{
    struct ethtool_cmd command = {.cmd = ETHTOOL_SSET, .duplex = DUPLEX_FULL};
    struct ifreq request = {.ifr_data = (void *)&command};
    memcpy(request.ifr_name, DEVICE, sizeof DEVICE);
    const double mbits = ns_per_byte > 0 ? 8e3 / ns_per_byte : 10000;
    ethtool_cmd_speed_set(&command, mbits < 1 ? 1 : (uint32_t)mbits);
    const int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool done = any >= 0 && ioctl(any, SIOCETHTOOL, &request) == 0;
    if (any >= 0)
        close(any);
    return done;
}

/* Makes the device in the namespace, where this process stays. Returns its descriptor, or −1. */
static int open_device(const char *host, double ns_per_byte)
{
    char path[256];
    snprintf(path, sizeof path, strchr(host, '/') ? "%s" : "/run/netns/%s", host);
    const int space = open(path, O_RDONLY | O_CLOEXEC);
    if (space < 0 || setns(space, CLONE_NEWNET) != 0)
        return fail("enter the namespace", host);
    close(space);
    const int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (device < 0)
        return fail("open", "/dev/net/tun");
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR};
    memcpy(request.ifr_name, DEVICE, sizeof DEVICE);
    if (ioctl(device, TUNSETIFF, &request) != 0)
        return fail("make " DEVICE " in", host);
    if (ioctl(device, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4) != 0)
        return fail("set the offloads of " DEVICE " in", host);
    if (!set_speed(ns_per_byte))
        return fail("set the speed of " DEVICE " in", host);
    return device;
}

/* Returns the bytes of all IP packets that the packet would be on a wire. */
static double wire_bytes(const uint8_t *bytes, size_t size)
{
    struct virtio_net_hdr header;
    memcpy(&header, bytes, sizeof header);
    const size_t all = size - sizeof header;
    if (header.gso_type == VIRTIO_NET_HDR_GSO_NONE || header.gso_size == 0 || header.hdr_len >= all)
        return (double)all;
    const size_t segments = (all - header.hdr_len + header.gso_size - 1) / header.gso_size;
    return (double)(all + (segments - 1) * header.hdr_len);
}

/* Reads the packets that are there. Returns false if the device has failed. */
static bool take(way *w, const settings *s)
{
    static uint8_t bytes[PACKET_BYTES];
    for (;;) {
        const ssize_t size = read(w->from, bytes, sizeof bytes);
        if (size < 0)
            return errno == EAGAIN || errno == EINTR || fail("read from", DEVICE) == 0;
        if ((size_t)size <= sizeof(struct virtio_net_hdr))
            continue;
        const int64_t now = now_ns(), start = w->free_ns > now ? w->free_ns : now;
        const double sending = wire_bytes(bytes, (size_t)size) * s->ns_per_byte;
        const bool full =
            w->count == PACKETS || (double)(start - now) > s->queue_bytes * s->ns_per_byte;
        uint8_t *copy = full ? NULL : malloc((size_t)size);
        if (copy == NULL)
            continue;
        memcpy(copy, bytes, (size_t)size);
        w->free_ns = start + (int64_t)sending;
        w->ring[(w->first + w->count) % PACKETS] =
            (packet){w->free_ns + s->delay_ns, (size_t)size, copy};
        w->count++;
    }
}

/* Writes the packets that have arrived. Returns false if the device has failed. */
static bool deliver(way *w)
{
    while (w->count > 0 && w->ring[w->first].arrives_ns <= now_ns()) {
        packet *p = &w->ring[w->first];
        const ssize_t written = write(w->to, p->bytes, p->size);
        if (written < 0 && errno != EAGAIN && errno != EIO && errno != EINVAL)
            return fail("write to", DEVICE) == 0; /* EIO: the device is down; EINVAL: not for it */
        free(p->bytes);
        w->first = (w->first + 1) % PACKETS;
        w->count--;
    }
    return true;
}

/* Sleeps until a packet comes, or shortly before one arrives. */
static bool wait_for_packets(const way ways[2])
{
    int64_t next = INT64_MAX;
    for (int i = 0; i < 2; i++)
        if (ways[i].count > 0 && ways[i].ring[ways[i].first].arrives_ns < next)
            next = ways[i].ring[ways[i].first].arrives_ns;
    int64_t left = next == INT64_MAX ? 0 : next - now_ns() - SPIN_NS;
    left = left < 0 ? 0 : left;
    const struct timespec timeout = {left / 1000000000, left % 1000000000};
    struct pollfd devices[2] = {{ways[0].from, POLLIN, 0}, {ways[1].from, POLLIN, 0}};
    const int ready = ppoll(devices, 2, next == INT64_MAX ? NULL : &timeout, NULL);
    return (ready >= 0 || errno == EINTR || fail("poll", DEVICE) == 0) &&
           !((devices[0].revents | devices[1].revents) & (POLLERR | POLLNVAL));
}

static bool read_number(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return end != text && *end == '\0' && *out >= 0 && *out <= 1e15;
}

static bool read_options(int argc, char **argv, settings *out)
{
    double bandwidth = 0, delay_us = 0;
    out->queue_bytes = 4 << 20;
    if (argc < 3 || argc % 2 == 0)
        return false;
    for (int i = 3; i < argc; i += 2) {
        double *value = strcmp(argv[i], "--delay") == 0       ? &delay_us
                        : strcmp(argv[i], "--bandwidth") == 0 ? &bandwidth
                        : strcmp(argv[i], "--queue") == 0     ? &out->queue_bytes
                                                              : NULL;
        if (value == NULL || !read_number(argv[i + 1], value)) {
            fprintf(stderr, "relay: %s %s is unknown or no number\n", argv[i], argv[i + 1]);
            return false;
        }
    }
    out->delay_ns = (int64_t)(delay_us * 1e3);
    out->ns_per_byte = bandwidth > 0 ? 8e9 / bandwidth : 0;
    return true;
}

int main(int argc, char **argv)
{
    static way ways[2];
    settings s;
    if (!read_options(argc, argv, &s)) {
        fputs("usage: relay HOST HOST [--delay US] [--bandwidth BITS/S] [--queue BYTES]\n", stderr);
        return 2;
    }
    const int a = open_device(argv[1], s.ns_per_byte),
              b = a < 0 ? -1 : open_device(argv[2], s.ns_per_byte);
    if (a < 0 || b < 0)
        return 1;
    ways[0].from = ways[1].to = a;
    ways[0].to = ways[1].from = b;
    prctl(PR_SET_TIMERSLACK, 1UL);
    /* The ranks use all processors. Without the right to do this, packets may be late. */
    if (sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 20}) != 0)
        fputs("relay: no real-time priority: packets may be late\n", stderr);
    puts("ready");
    fflush(stdout);
    while (wait_for_packets(ways) && take(&ways[0], &s) && take(&ways[1], &s) &&
           deliver(&ways[0]) && deliver(&ways[1]))
        ;
    return 1;
}
