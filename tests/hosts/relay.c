/* Simulates a slow network between network namespaces. The program makes a TUN device `slow0` in
 * each, and forwards the packets that are routed into one to the others: a packet for an address
 * that ends in N goes to the Nth host.
 *
 *     relay HOST HOST… [--delay US] [--bandwidth BITS_PER_SECOND] [--queue BYTES]
 *
 * HOST is a name of `ip netns`, or a path such as /proc/PID/ns/net. Each host has a link to a
 * switch in each direction. Packets leave a host one after another, each with all its bytes at the
 * bandwidth. A packet arrives at the switch after the delay. While it arrives, the switch sends it
 * on to the other host, after the packets before it. So between two hosts there is one link in each
 * direction. The bandwidth is that of IP packets as they would be on a wire of MTU 1500: TCP's
 * payload is 1448 of 1500 bytes. Packets that wait for a link are in its queue (default: 4 MiB). If
 * a packet does not fit into the queue, it is dropped, as by a switch. 0 (the default) means no
 * delay and no limit of bandwidth.
 *
 * Prints "ready" when the devices exist; the caller must set their addresses. Ends with the first
 * signal. Needs the right to administer the namespaces. */
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
    /* Room for the offload header and one packet of the largest size, which may hold many
     * segments of TCP. Large packets let a processor that also runs the ranks keep up with a
     * fast link. */
    PACKET_BYTES = 10 + 65536,
    PACKETS = 4096, /* the most packets on a link in one direction */
    MOST_HOSTS = 8,
    /* The longest time by which a sleeping process is assumed to wake up late; late_ns starts
     * with it. */
    LATE_NS = 60000,
    /* The relay polls instead of sleeping for waits up to the average lateness plus this time. */
    SPIN_NS = 5000,
};

typedef struct packet {
    int64_t arrives_ns;
    double wire_bytes;
    int to; /* the number of the host */
    size_t size;
    uint8_t *bytes; /* [size] */
} packet;

/* One direction of a link: a ring of the packets on their way, and the time when the link has sent
 * the last of them. */
typedef struct way {
    packet ring[PACKETS];
    unsigned first, count;
    int64_t free_ns;
} way;

typedef struct settings {
    int64_t delay_ns;
    double ns_per_byte;
    double queue_bytes;
    int hosts;
} settings;

static int devices[MOST_HOSTS];
static way to_switch[MOST_HOSTS], from_switch[MOST_HOSTS];
/* How late this process wakes up, on average: twice as late on an idle processor as on a busy one.
 * It must not poll longer than necessary, because that takes processor time from the ranks. */
static int64_t late_ns = LATE_NS;

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

/* Sets the speed that the device reports to programs, such as UCX, that ask for it. */
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

/* Creates the device in the host's namespace. This process stays in that namespace. Returns the
 * device's descriptor, or −1. */
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

/* Returns the bytes of all IP packets that this packet would be on a wire. */
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

/* Returns the host to which an IPv4 packet is addressed, or −1. */
static int destination(const uint8_t *bytes, size_t size, int hosts)
{
    const uint8_t *ip = bytes + sizeof(struct virtio_net_hdr);
    if (size < sizeof(struct virtio_net_hdr) + 20 || ip[0] >> 4 != 4)
        return -1;
    return ip[19] >= 1 && ip[19] <= hosts ? ip[19] - 1 : -1;
}

/* Sends a packet over one direction of a link. It starts at `from_ns` or after the packets before
 * it, and has arrived at `not_before_ns` at the earliest. Returns whether there was room in the
 * queue; if not, the packet is lost. */
static bool send_over(way *w, packet p, int64_t from_ns, int64_t not_before_ns, int64_t delay_ns,
                      const settings *s)
{
    const int64_t start = w->free_ns > from_ns ? w->free_ns : from_ns;
    const bool full =
        w->count == PACKETS || (double)(start - from_ns) > s->queue_bytes * s->ns_per_byte;
    if (full) {
        free(p.bytes);
        return false;
    }
    w->free_ns = start + (int64_t)(p.wire_bytes * s->ns_per_byte);
    if (w->free_ns < not_before_ns)
        w->free_ns = not_before_ns;
    p.arrives_ns = w->free_ns + delay_ns;
    w->ring[(w->first + w->count++) % PACKETS] = p;
    return true;
}

static packet remove_first(way *w)
{
    const packet p = w->ring[w->first];
    w->first = (w->first + 1) % PACKETS;
    w->count--;
    return p;
}

/* Reads the packets that a host has sent, and sends them over its link. Returns false if the
 * device has failed. */
static bool take(int host, const settings *s)
{
    static uint8_t bytes[PACKET_BYTES];
    for (;;) {
        const ssize_t size = read(devices[host], bytes, sizeof bytes);
        if (size < 0)
            return errno == EAGAIN || errno == EINTR || fail("read from", DEVICE) == 0;
        const int to = destination(bytes, (size_t)size, s->hosts);
        uint8_t *copy = to < 0 ? NULL : malloc((size_t)size);
        if (copy == NULL)
            continue;
        memcpy(copy, bytes, (size_t)size);
        const packet p = {0, wire_bytes(bytes, (size_t)size), to, (size_t)size, copy};
        (void)send_over(&to_switch[host], p, now_ns(), 0, s->delay_ns, s);
    }
}

/* Returns the time when the first packet of a link arrives. */
static int64_t arrival(const way *w)
{
    return w->count > 0 ? w->ring[w->first].arrives_ns : INT64_MAX;
}

static way *earliest(way ways[MOST_HOSTS])
{
    way *first = &ways[0];
    for (int i = 1; i < MOST_HOSTS; i++)
        first = arrival(&ways[i]) < arrival(first) ? &ways[i] : first;
    return first;
}

/* Passes on the packets that have arrived at the switch, in the order of their arrival. The link to
 * the other host has carried each of them since its first byte arrived. */
static void pass_on(const settings *s)
{
    way *w;
    while (arrival(w = earliest(to_switch)) <= now_ns()) {
        const packet p = remove_first(w);
        const int64_t sending = (int64_t)(p.wire_bytes * s->ns_per_byte);
        (void)send_over(&from_switch[p.to], p, p.arrives_ns - sending, p.arrives_ns, 0, s);
    }
}

/* Writes the packets that have arrived. Returns false if a device has failed. */
static bool deliver(const settings *s)
{
    for (int host = 0; host < s->hosts; host++) {
        while (arrival(&from_switch[host]) <= now_ns()) {
            const packet p = remove_first(&from_switch[host]);
            const ssize_t written = write(devices[host], p.bytes, p.size);
            free(p.bytes);
            if (written < 0 && errno != EAGAIN && errno != EIO && errno != EINVAL)
                return fail("write to", DEVICE) == 0; /* EIO: it is down; EINVAL: not for it */
        }
    }
    return true;
}

/* Sleeps until a host sends a packet, or until shortly before a packet arrives. */
static bool wait_for_packets(const settings *s)
{
    const int64_t here = arrival(earliest(to_switch)), there = arrival(earliest(from_switch)),
                  next = here < there ? here : there;
    const int64_t start = now_ns();
    int64_t left = next == INT64_MAX ? 0 : next - start - late_ns - SPIN_NS;
    left = left < 0 ? 0 : left;
    const struct timespec timeout = {left / 1000000000, left % 1000000000};
    struct pollfd polled[MOST_HOSTS];
    short failed = 0;
    for (int i = 0; i < s->hosts; i++)
        polled[i] = (struct pollfd){devices[i], POLLIN, 0};
    const int ready = ppoll(polled, (nfds_t)s->hosts, next == INT64_MAX ? NULL : &timeout, NULL);
    if (ready == 0 && left > 0) {
        const int64_t late = now_ns() - start - left;
        late_ns += ((late < LATE_NS ? late : LATE_NS) - late_ns) / 8;
    }
    for (int i = 0; ready > 0 && i < s->hosts; i++)
        failed |= polled[i].revents & (POLLERR | POLLNVAL);
    return (ready >= 0 || errno == EINTR || fail("poll", DEVICE) == 0) && !failed;
}

static bool step(const settings *s)
{
    bool well = wait_for_packets(s);
    for (int i = 0; well && i < s->hosts; i++)
        well = take(i, s);
    pass_on(s);
    return well && deliver(s);
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
    *out = (settings){.queue_bytes = 4 << 20};
    while (out->hosts + 1 < argc && strncmp(argv[out->hosts + 1], "--", 2) != 0)
        out->hosts++;
    if (out->hosts < 2 || out->hosts > MOST_HOSTS || (argc - 1 - out->hosts) % 2 != 0)
        return false;
    for (int i = out->hosts + 1; i < argc; i += 2) {
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
    settings s;
    if (!read_options(argc, argv, &s)) {
        fprintf(stderr,
                "usage: relay HOST HOST… [--delay US] [--bandwidth BITS/S] [--queue BYTES], with 2 "
                "to %d hosts\n",
                MOST_HOSTS);
        return 2;
    }
    for (int i = 0; i < s.hosts; i++)
        if ((devices[i] = open_device(argv[i + 1], s.ns_per_byte)) < 0)
            return 1;
    prctl(PR_SET_TIMERSLACK, 1UL);
    /* The ranks use all processors, so the relay needs a real-time priority. Without the right to
     * set it, packets may be late. */
    if (sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 20}) != 0)
        fputs("relay: no real-time priority: packets may be late\n", stderr);
    puts("ready");
    fflush(stdout);
    while (step(&s))
        ;
    return 1;
}
