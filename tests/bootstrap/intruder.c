/* A process that connects to rank 0 without belonging to its job.
 *
 *     intruder ADDRESS PORT garbage     sends bytes that are not of the protocol
 *     intruder ADDRESS PORT look        disconnects without sending anything
 *     intruder ADDRESS PORT agent       listens instead, as torchrun's agent does: prints "ready",
 *     and "touched" for each connection, until it is killed
 *
 * Exit status: 0 if rank 0 accepted the connection and then dropped it, 3 if nobody listens. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/bootstrap/address.h"

static int be_agent(const tsr__address *address)
{
    int listener = socket(address->storage.ss_family, SOCK_STREAM, 0);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (listener < 0 || bind(listener, (const struct sockaddr *)&address->storage, address->size) ||
        listen(listener, 16) != 0) {
        perror("listen");
        return 3;
    }
    puts("ready");
    while (accept(listener, NULL, NULL) >= 0)
        puts("touched");
    return 1;
}

int main(int argc, char **argv)
{
    tsr__address address;
    static const char garbage[] = "GET / HTTP/1.1\r\nHost: rank-0\r\n\r\n";
    char rest[64];
    if (argc != 4 ||
        tsr__address_find(argv[1], (uint16_t)atoi(argv[2]), UINT64_MAX, &address) != TSR_OK)
        return 2;
    if (strcmp(argv[3], "agent") == 0)
        return be_agent(&address);
    int fd = socket(address.storage.ss_family, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address.storage, address.size) != 0) {
        perror("connect");
        return 3;
    }
    if (strcmp(argv[3], "garbage") == 0 &&
        send(fd, garbage, sizeof garbage, MSG_NOSIGNAL) != (ssize_t)sizeof garbage)
        return 1;
    if (strcmp(argv[3], "look") == 0)
        return 0;
    struct pollfd one = {.fd = fd, .events = POLLIN};
    return poll(&one, 1, 10000) == 1 && recv(fd, rest, sizeof rest, 0) <= 0 ? 0 : 1;
}
