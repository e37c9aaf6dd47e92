#include "bootstrap/raw_client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sodium.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "support/check_main.h"

int client_connect(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    uint64_t deadline = tsr__deadline_ns(10 * TSR__SECOND);
    for (;;) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        ck_assert(fd >= 0);
        if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
            return fd;
        close(fd);
        ck_assert(tsr__now_ns() < deadline);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

void client_send(int fd, const void *bytes, size_t size)
{
    ck_assert(send(fd, bytes, size, MSG_NOSIGNAL) == (ssize_t)size);
}

void client_receive(int fd, void *bytes, size_t size)
{
    for (size_t got = 0; got < size;) {
        struct pollfd poll_one = {.fd = fd, .events = POLLIN};
        ck_assert(poll(&poll_one, 1, 10000) == 1);
        ssize_t count = recv(fd, (uint8_t *)bytes + got, size - got, 0);
        ck_assert(count > 0);
        got += (size_t)count;
    }
}

size_t client_receive_until_closed(int fd, void *bytes, size_t size, int limit_ms)
{
    size_t got = 0;
    uint64_t deadline = tsr__deadline_ns((uint64_t)limit_ms * 1000000);
    for (;;) {
        struct pollfd poll_one = {.fd = fd, .events = POLLIN};
        ck_assert(poll(&poll_one, 1, tsr__poll_ms(deadline)) == 1);
        ssize_t count = recv(fd, (uint8_t *)bytes + got, size - got, 0);
        if (count == 0 || (count < 0 && errno == ECONNRESET))
            return got;
        ck_assert(count > 0);
        got += (size_t)count;
    }
}

size_t client_message(uint8_t *out, tsr__wire_type type, const void *body, size_t size)
{
    tsr__wire_header(type, size, out);
    memcpy(out + TSR__WIRE_HEADER, body, size);
    return TSR__WIRE_HEADER + size;
}

static tsr__wire_type receive_answer(int fd, uint8_t *body)
{
    uint8_t header[TSR__WIRE_HEADER];
    tsr__wire_type type;
    uint64_t size;
    client_receive(fd, header, sizeof header);
    ck_assert(tsr__wire_read_header(header, &type, &size) == NULL);
    ck_assert(size <= 64);
    client_receive(fd, body, (size_t)size);
    return type;
}

static size_t make_hello(tsr__wire_handshake *handshake, uint8_t *out)
{
    uint8_t hello[TSR__WIRE_HELLO_SIZE];
    randombytes_buf(handshake->rank_nonce, sizeof handshake->rank_nonce);
    tsr__wire_put_u32(hello, handshake->rank);
    tsr__wire_put_u32(hello + 4, handshake->size);
    memcpy(hello + 8, handshake->rank_nonce, sizeof handshake->rank_nonce);
    return client_message(out, TSR__WIRE_HELLO, hello, sizeof hello);
}

tsr__wire_type client_hello(int fd, tsr__wire_handshake *handshake, uint8_t *body)
{
    uint8_t message[400];
    client_send(fd, message, make_hello(handshake, message));
    return receive_answer(fd, body);
}

size_t client_proof(const char *purpose, const char *token, const char *const *identity,
                    const tsr__wire_handshake *handshake, uint8_t *out)
{
    uint8_t proof[TSR__WIRE_PROOF_SIZE];
    tsr__wire_prove(purpose, token, strlen(token), handshake, proof);
    for (int i = 0; i < TSR__IDENTITY_FIELDS; i++)
        tsr__wire_prove_identity((tsr__identity_field)i, identity != NULL ? identity[i] : NULL,
                                 token, strlen(token), handshake,
                                 proof + (size_t)(1 + i) * TSR__WIRE_MAC);
    return client_message(out, TSR__WIRE_PROOF, proof, sizeof proof);
}

tsr__wire_type client_join(int fd, tsr__wire_handshake *handshake, const char *token,
                           const char *const *identity, uint8_t *body, uint8_t *spoken,
                           size_t *spoken_size)
{
    *spoken_size = make_hello(handshake, spoken);
    client_send(fd, spoken, *spoken_size);
    tsr__wire_type type = receive_answer(fd, body);
    if (type != TSR__WIRE_CHALLENGE)
        return type;
    memcpy(handshake->zero_nonce, body, sizeof handshake->zero_nonce);
    size_t size = client_proof("rank", token, identity, handshake, spoken + *spoken_size);
    client_send(fd, spoken + *spoken_size, size);
    *spoken_size += size;
    return receive_answer(fd, body);
}
