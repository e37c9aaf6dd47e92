#define _GNU_SOURCE /* for pipe2 */
#include "comm/shm/mailbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"

/* The head of a message in the pipe; the `bytes` bytes of the message follow. The kernel writes up
 * to PIPE_BUF bytes at once, so messages of several processes do not mix, and if the head of a
 * message is in the pipe, the whole message is. */
typedef struct head {
    uint32_t bytes;
} head;

typedef struct peer_mailbox {
    tsr__mailbox_key key;
    int file; /* −1: not open yet */
} peer_mailbox;

struct tsr__mailbox {
    tsr__mailbox_key key;
    int files[2]; /* the pipe: the end to read from, and the end to write to */
    int size;
    peer_mailbox *peers; /* [size] */
};

static tsr__mailbox *fail_mailbox(tsr__mailbox *mailbox, const char *what)
{
    const int error = errno;
    char text[128];
    if (strerror_r(error, text, sizeof text) != 0)
        (void)snprintf(text, sizeof text, "error %d", error);
    tsr__log(TSR_LOG_INFO, "comm: no mailbox, connections are used instead: %s: %s", what, text);
    tsr__mailbox_close(&mailbox);
    return NULL;
}

tsr__mailbox *tsr__mailbox_open(int size)
{
    struct stat info;
    tsr__mailbox *mailbox = tsr__calloc(1, sizeof *mailbox);
    errno = ENOMEM;
    if (!mailbox)
        return fail_mailbox(NULL, "calloc");
    mailbox->files[0] = mailbox->files[1] = -1;
    mailbox->peers = tsr__calloc((size_t)size, sizeof *mailbox->peers);
    if (!mailbox->peers)
        return fail_mailbox(mailbox, "calloc");
    mailbox->size = size;
    for (int i = 0; i < size; i++)
        mailbox->peers[i] = (peer_mailbox){.key.file = -1, .file = -1};
    /* This process keeps the end to write to open, so that reading never reports the end of the
     * pipe. */
    if (pipe2(mailbox->files, O_CLOEXEC | O_NONBLOCK) != 0)
        return fail_mailbox(mailbox, "pipe2");
    if (fstat(mailbox->files[0], &info) != 0)
        return fail_mailbox(mailbox, "fstat");
    mailbox->key = (tsr__mailbox_key){
        .pid = getpid(), .pipe = (uint64_t)info.st_ino, .file = mailbox->files[0]};
    return mailbox;
}

void tsr__mailbox_close(tsr__mailbox **mailbox)
{
    tsr__mailbox *closing = *mailbox;
    *mailbox = NULL;
    if (!closing)
        return;
    for (int i = 0; i < closing->size; i++) {
        if (closing->peers[i].file >= 0)
            close(closing->peers[i].file);
    }
    for (int i = 0; i < 2; i++) {
        if (closing->files[i] >= 0)
            close(closing->files[i]);
    }
    tsr__free(closing->peers);
    tsr__free(closing);
}

tsr__mailbox_key tsr__mailbox_get_key(const tsr__mailbox *mailbox)
{
    return mailbox ? mailbox->key : (tsr__mailbox_key){.file = -1};
}

int tsr__mailbox_file(const tsr__mailbox *mailbox)
{
    return mailbox ? mailbox->files[0] : -1;
}

void tsr__mailbox_add(tsr__mailbox *mailbox, int peer, const tsr__mailbox_key *key)
{
    if (mailbox)
        mailbox->peers[peer].key = *key;
}

/* Opens the pipe of another process. Checks the inode, because after that process has closed the
 * pipe, another file may have the same descriptor number. The pipe is opened for reading too,
 * although this process never reads from it. Otherwise a write after the owner has closed the pipe
 * would raise SIGPIPE. */
static bool open_peer(peer_mailbox *other)
{
    char path[64];
    struct stat info;
    (void)snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)other->key.pid,
                   (int)other->key.file);
    const int file = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0)
        return false;
    if (fstat(file, &info) != 0 || !S_ISFIFO(info.st_mode) ||
        (uint64_t)info.st_ino != other->key.pipe) {
        close(file);
        return false;
    }
    other->file = file;
    return true;
}

tsr__mailbox_result tsr__mailbox_send(tsr__mailbox *mailbox, int to, const void *data, size_t bytes)
{
    uint8_t framed[sizeof(head) + TSR__MAILBOX_MAX_BYTES];
    peer_mailbox *other = mailbox ? &mailbox->peers[to] : NULL;
    if (!other || other->key.file < 0 || bytes > TSR__MAILBOX_MAX_BYTES)
        return TSR__MAILBOX_UNREACHABLE;
    if (other->file < 0 && !open_peer(other)) {
        other->key.file = -1;
        return TSR__MAILBOX_UNREACHABLE;
    }
    memcpy(framed, &(head){.bytes = (uint32_t)bytes}, sizeof(head));
    memcpy(framed + sizeof(head), data, bytes);
    const ssize_t written = write(other->file, framed, sizeof(head) + bytes);
    if (written == (ssize_t)(sizeof(head) + bytes))
        return TSR__MAILBOX_SENT;
    return errno == EAGAIN || errno == EINTR ? TSR__MAILBOX_FULL : TSR__MAILBOX_UNREACHABLE;
}

size_t tsr__mailbox_receive(tsr__mailbox *mailbox, void *data, size_t capacity)
{
    head next;
    if (!mailbox || read(mailbox->files[0], &next, sizeof next) != (ssize_t)sizeof next)
        return 0;
    if (next.bytes <= capacity && read(mailbox->files[0], data, next.bytes) == (ssize_t)next.bytes)
        return next.bytes;
    /* Another program of this user has written to the pipe. Discard everything, because the next
     * bytes may be the middle of a message. */
    uint8_t rest[256];
    while (read(mailbox->files[0], rest, sizeof rest) > 0)
        ;
    return 0;
}
