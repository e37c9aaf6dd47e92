/* Mailboxes carry control messages (progress/control_channel.h) between processes of one host that
 * have no connection with each other, and control messages that must not wait behind messages of
 * the transport. The mailbox of a process is an unnamed pipe. The other processes open the pipe
 * through /proc and write to it, which only processes of the same user can do. Nothing is allocated
 * or opened for a process to which nothing is sent, so any number of processes can reach each
 * other.
 *
 * Only one thread may use a mailbox at a time. All functions accept NULL, which stands for a
 * mailbox that reaches no process. */
#ifndef TSR_COMM_SHM_MAILBOX_H
#define TSR_COMM_SHM_MAILBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TSR__MAILBOX_MAX_BYTES 2048 /* the largest size of a message */

typedef struct tsr__mailbox tsr__mailbox;

/* The data with which another process finds a mailbox. Processes send it to each other without
 * conversion. */
typedef struct tsr__mailbox_key {
    int64_t pid;
    uint64_t pipe; /* the inode number of the pipe, which no other pipe of the host has */
    int32_t file;  /* a file descriptor of the owner; −1: no mailbox */
    uint32_t unused;
} tsr__mailbox_key;

/* Opens the mailbox of this process in a job of `size` processes. Returns NULL if that is
 * impossible, and logs the reason. */
tsr__mailbox *tsr__mailbox_open(int size);
/* Sets the pointer to NULL. */
void tsr__mailbox_close(tsr__mailbox **mailbox);
tsr__mailbox_key tsr__mailbox_get_key(const tsr__mailbox *mailbox);
/* Returns a file descriptor that is readable when a message has arrived, or −1 if there is no
 * mailbox.
 */
int tsr__mailbox_file(const tsr__mailbox *mailbox);

/* Makes the mailbox of another process known. The caller must watch that process, and must send it
 * nothing after it has ended. */
void tsr__mailbox_add(tsr__mailbox *mailbox, int peer, const tsr__mailbox_key *key);

typedef enum tsr__mailbox_result {
    TSR__MAILBOX_SENT,
    TSR__MAILBOX_FULL,       /* the other process has not read for a long time */
    TSR__MAILBOX_UNREACHABLE /* the other process is not known, or its mailbox cannot be opened */
} tsr__mailbox_result;
tsr__mailbox_result tsr__mailbox_send(tsr__mailbox *mailbox, int peer, const void *data,
                                      size_t bytes);
/* Takes the oldest message that has arrived. Returns its size, or 0 if there is no message. */
size_t tsr__mailbox_receive(tsr__mailbox *mailbox, void *data, size_t capacity);

#endif
