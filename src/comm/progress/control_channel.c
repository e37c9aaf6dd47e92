#include "comm/progress/control_channel.h"

#include <stddef.h>
#include <string.h>

#include "base/alloc.h"
#include "comm/failure/failure.h"
#include "comm/message_tags.h"

/* number of receives for control messages that are posted at the same time */
#define POSTED 4
#define WAKE_BYTES 8
/* how long to wait before a control message is sent again to a mailbox that was full */
#define RETRY_NS UINT64_C(1000000)

typedef enum control_kind {
    /* Asks which call the receiver has made with the sequence number of `call`. The sender is
     * waiting in `call`. */
    CONTROL_ASK,
    CONTROL_ANSWER, /* the answer to question `number`: `call` is the call of the rank that answers
                     */
    CONTROL_ABORT,  /* the sender's communicator has failed */
    CONTROL_LEAVE,  /* the sender destroys the communicator; `number`: whether its job continues */
    CONTROL_WAKE    /* wakes the receiver; only the first WAKE_BYTES are sent */
} control_kind;

/* Processes of one build send this struct to each other without conversion. */
typedef struct control_message {
    uint32_t kind, comm;
    int32_t from; /* the sender's rank in the communicator */
    /* The sender's rank in the job. It identifies the communicator together with `comm` and `from`,
     * see message_tags.h. */
    int32_t world;
    uint32_t number;
    int32_t status;
    uint32_t has_call;
    uint32_t unused;
    uint64_t sequence;
    /* `before` is the sender's collective call before `call`. If the sender does not keep that call
     * any more, `before` equals `call`. */
    tsr__call call, before;
    char why[TSR__COMM_WHY];
} control_message;

typedef struct outgoing {
    struct outgoing *next;
    tsr__message message;
    int waits_for; /* a rank of the job whose mailbox is full; −1: none */
    control_message body;
} outgoing;

struct tsr__control {
    struct {
        tsr__message message;
        control_message body;
        bool has_arrived;
    } posted[POSTED];
    int next;     /* the index in `posted` of the oldest receive, which completes first */
    bool closing; /* the channel is being closed, so no more receives are posted */
    outgoing *sent;
    int waiting; /* the number of control messages in `sent` that wait for room in a mailbox */
    /* Messages for communicators that do not exist on this rank yet; tsr__control_replay handles
     * them when they do. */
    control_message *early;
    size_t early_count, early_capacity;
};

_Static_assert(sizeof(control_message) <= TSR__MAILBOX_MAX_BYTES,
               "a control message fits into a mailbox");

/* Returns how many bytes of a control message are sent: those of the fields that its kind uses. */
static size_t control_message_bytes(const control_message *body)
{
    if (body->kind == CONTROL_WAKE)
        return WAKE_BYTES;
    if (body->status < 0)
        return sizeof *body;
    return body->has_call ? offsetof(control_message, why) : offsetof(control_message, call);
}

static void on_received(tsr__message *message)
{
    tsr__job *job = message->owner;
    tsr__control *control = job->control;
    for (int i = 0; i < POSTED; i++) {
        if (&control->posted[i].message == message)
            control->posted[i].has_arrived = true;
    }
}

static void post_receive(tsr__job *job, int i)
{
    tsr__control *control = job->control;
    tsr__message *message = &control->posted[i].message;
    control->posted[i].has_arrived = false;
    *message = (tsr__message){.on_complete = on_received, .owner = job};
    tsr__transport_recv(job->transport, job->rank, TSR__TAG_CONTROL, TSR__TAG_CONTROL_MASK,
                        &control->posted[i].body, sizeof control->posted[i].body, message);
    control->posted[i].has_arrived = message->state != TSR__MESSAGE_IN_FLIGHT;
}

tsr_status tsr__control_open(tsr__job *job)
{
    job->control = tsr__calloc(1, sizeof *job->control);
    if (!job->control)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < POSTED; i++)
        post_receive(job, i);
    return job->mailbox ? tsr__transport_watch_file(job->transport, tsr__mailbox_file(job->mailbox))
                        : TSR_OK;
}

void tsr__control_cancel(tsr__job *job)
{
    if (!job->control)
        return;
    job->control->closing = true;
    for (int i = 0; i < POSTED; i++)
        tsr__transport_cancel(job->transport, &job->control->posted[i].message);
}

void tsr__control_close(tsr__job *job)
{
    if (!job->control)
        return;
    while (job->control->sent) {
        outgoing *next = job->control->sent->next;
        tsr__free(job->control->sent);
        job->control->sent = next;
    }
    tsr__free(job->control->early);
    tsr__free(job->control);
    job->control = NULL;
}

/* Sending -----------------------------------------------------------------------------------------
 */

static outgoing *unused_outgoing(tsr__control *control)
{
    for (outgoing *slot = control->sent; slot; slot = slot->next) {
        if (slot->message.state != TSR__MESSAGE_IN_FLIGHT && slot->waits_for < 0)
            return slot;
    }
    outgoing *slot = tsr__calloc(1, sizeof *slot);
    if (slot) {
        slot->next = control->sent;
        slot->waits_for = -1;
        control->sent = slot;
    }
    return slot;
}

/* Returns whether a control message must be sent to a rank. A rank that has left needs only
 * CONTROL_LEAVE: after it, this rank does not read the other rank's slot any more. */
static bool is_wanted_by(const tsr_comm *comm, int rank, const control_message *body)
{
    const tsr__peer_state *peer = &comm->peers[rank];
    if (rank == comm->rank || tsr__transport_is_lost(comm->job->transport, comm->world_of[rank]))
        return false;
    return !peer->left || (peer->job_continues && comm->shm && body->kind == CONTROL_LEAVE);
}

/* Sends a control message to a rank. A control message that reports a failure must not overtake
 * messages that this rank has sent before, because these may complete the operations of other
 * ranks. If `overtakes` is true, the message is a question or an answer, which may overtake
 * messages. Such a control message goes through the mailbox of a rank of this host, so that it
 * arrives even if that rank cannot receive messages any more (tsr__transport_is_stuck). */
static void send_to_rank(tsr_comm *comm, int rank, const control_message *body, bool overtakes)
{
    tsr__job *job = comm->job;
    const int world = comm->world_of[rank];
    tsr__mailbox_result result = TSR__MAILBOX_UNREACHABLE;
    if (!is_wanted_by(comm, rank, body))
        return;
    if (overtakes || !tsr__transport_is_connected(job->transport, world))
        result = tsr__mailbox_send(job->mailbox, world, body, control_message_bytes(body));
    /* A rank whose mailbox is full is awake, so it need not be woken. */
    if (result == TSR__MAILBOX_SENT || (result == TSR__MAILBOX_FULL && body->kind == CONTROL_WAKE))
        return;
    outgoing *slot = unused_outgoing(job->control);
    if (!slot)
        return;
    slot->body = *body;
    slot->message = (tsr__message){0};
    if (result == TSR__MAILBOX_FULL) {
        slot->waits_for = world;
        job->control->waiting++;
    } else {
        tsr__transport_send(job->transport, world, TSR__TAG_CONTROL | tsr__tag_source(job->rank),
                            &slot->body, control_message_bytes(body), &slot->message);
    }
}

/* Tries again to send the control messages that wait because a rank's mailbox was full. Drops
 * control messages to ranks that are lost. */
static void send_waiting(tsr__job *job)
{
    for (outgoing *slot = job->control->sent; slot && job->control->waiting > 0;
         slot = slot->next) {
        if (slot->waits_for < 0)
            continue;
        if (!tsr__transport_is_lost(job->transport, slot->waits_for) &&
            tsr__mailbox_send(job->mailbox, slot->waits_for, &slot->body,
                              control_message_bytes(&slot->body)) == TSR__MAILBOX_FULL)
            continue;
        slot->waits_for = -1;
        job->control->waiting--;
    }
}

bool tsr__control_is_behind(const tsr__job *job)
{
    return job->control && job->control->waiting > 0;
}

void tsr__control_flush(tsr__job *job, uint64_t until_ns)
{
    control_message ignored;
    while (tsr__control_is_behind(job) && tsr__now_ns() < until_ns) {
        /* empty this rank's mailbox, because other ranks may wait for room in it */
        while (tsr__mailbox_receive(job->mailbox, &ignored, sizeof ignored) > 0)
            ;
        (void)tsr__transport_progress(job->transport);
        tsr__transport_sleep(job->transport, tsr__deadline_ns(RETRY_NS));
        send_waiting(job);
    }
}

static void send_control_message(tsr_comm *comm, int rank, const control_message *body)
{
    if (!comm->job->control || comm->size == 1)
        return;
    const bool overtakes = body->kind != CONTROL_WAKE && (rank >= 0 || body->kind == CONTROL_ASK);
    for (int i = 0; i < comm->size; i++) {
        if (rank == i || rank < 0)
            send_to_rank(comm, i, body, overtakes);
    }
}

static control_message new_control_message(const tsr_comm *comm, control_kind kind)
{
    return (control_message){.kind = (uint32_t)kind,
                             .comm = comm->id,
                             .from = comm->rank,
                             .world = comm->job->rank,
                             .sequence = comm->sequence};
}

static void set_calls(const tsr_comm *comm, control_message *body, const tsr__call *call)
{
    const tsr__call *before =
        call->sequence > 0 ? tsr__comm_past_call(comm, call->sequence - 1) : NULL;
    body->has_call = 1;
    body->call = *call;
    body->before = before ? *before : *call;
}

void tsr__control_ask(tsr_comm *comm, int rank, uint32_t number, const tsr__call *call)
{
    control_message body = new_control_message(comm, CONTROL_ASK);
    body.number = number;
    set_calls(comm, &body, call);
    send_control_message(comm, rank, &body);
}

static void set_failure(const tsr_comm *comm, control_message *body)
{
    body->status = (int32_t)comm->status;
    memcpy(body->why, comm->why, sizeof body->why);
}

void tsr__control_abort(tsr_comm *comm, int rank)
{
    control_message body = new_control_message(comm, CONTROL_ABORT);
    set_failure(comm, &body);
    send_control_message(comm, rank, &body);
}

void tsr__control_wake(tsr_comm *comm, int rank)
{
    const control_message body = new_control_message(comm, CONTROL_WAKE);
    send_control_message(comm, rank, &body);
}

void tsr__control_leave(tsr_comm *comm)
{
    control_message body = new_control_message(comm, CONTROL_LEAVE);
    body.number = comm->job->references > 1;
    /* CONTROL_LEAVE also reports a failure of the communicator, because it may arrive before the
     * CONTROL_ABORT of the rank that failed first */
    set_failure(comm, &body);
    send_control_message(comm, -1, &body);
}

/* Receiving ---------------------------------------------------------------------------------------
 */

static void answer_question(tsr_comm *comm, const control_message *question)
{
    if (comm->status != TSR_OK) {
        tsr__control_abort(comm, question->from);
        return;
    }
    control_message body = new_control_message(comm, CONTROL_ANSWER);
    const tsr__call *mine = tsr__comm_past_call(comm, question->call.sequence);
    body.number = question->number;
    if (mine)
        set_calls(comm, &body, mine);
    send_control_message(comm, question->from, &body);
    tsr__comm_compare(comm, question->from, &question->call, &question->before);
}

static void handle_for_comm(tsr_comm *comm, const control_message *body)
{
    if (body->from < 0 || body->from >= comm->size || body->from == comm->rank ||
        comm->world_of[body->from] != body->world)
        return;
    tsr__peer_state *peer = &comm->peers[body->from];
    switch ((control_kind)body->kind) {
    case CONTROL_ASK:
        answer_question(comm, body);
        break;
    case CONTROL_ANSWER:
        peer->answered = body->number;
        peer->sequence = body->sequence;
        if (body->has_call)
            tsr__comm_compare(comm, body->from, &body->call, &body->before);
        break;
    case CONTROL_ABORT:
        if (body->status < 0)
            tsr__comm_fail(comm, false, (tsr_status)body->status, "%s", body->why);
        break;
    case CONTROL_LEAVE:
        peer->left = true;
        peer->job_continues = body->number != 0;
        if (body->status < 0)
            tsr__comm_fail(comm, false, (tsr_status)body->status, "%s", body->why);
        comm->has_departures = true;
        break;
    case CONTROL_WAKE:
        break;
    }
}

/* Keeps a control message for a communicator that this rank has not created yet. Few are kept: this
 * rank can be at most one communicator behind the other ranks, and each of them sends at most one
 * CONTROL_ABORT and one CONTROL_LEAVE for that communicator. */
static void keep_early(tsr__job *job, const control_message *body)
{
    tsr__control *control = job->control;
    void *early = control->early;
    if ((body->kind != CONTROL_ABORT && body->kind != CONTROL_LEAVE) ||
        control->early_count >= 2 * (size_t)job->size)
        return;
    const bool fits = tsr__grow(&early, &control->early_capacity, control->early_count + 1,
                                sizeof *control->early) == TSR_OK;
    control->early = early;
    if (fits)
        control->early[control->early_count++] = *body;
}

static void dispatch_to_comm(tsr__job *job, const control_message *body)
{
    for (tsr_comm *comm = job->comms; comm; comm = comm->next) {
        if (comm->id == body->comm) {
            handle_for_comm(comm, body);
            return;
        }
    }
    /* This rank has destroyed the communicator already, or has not created it yet. */
    if (body->kind == CONTROL_LEAVE && body->comm < job->next_id)
        tsr__shm_reader_left(job->shm_regions, body->comm, body->world);
    if (body->comm >= job->next_id)
        keep_early(job, body);
}

void tsr__control_replay(tsr_comm *comm)
{
    tsr__control *control = comm->job->control;
    size_t kept = 0;
    for (size_t i = 0; control && i < control->early_count; i++) {
        if (control->early[i].comm == comm->id)
            handle_for_comm(comm, &control->early[i]);
        else if (control->early[i].comm >= comm->job->next_id)
            control->early[kept++] = control->early[i];
    }
    if (control)
        control->early_count = kept;
}

/* Handles a control message of which `bytes` bytes have arrived. */
static void take_arrived(tsr__job *job, control_message *body, uint64_t bytes)
{
    const bool has_head = bytes >= offsetof(control_message, call);
    body->why[sizeof body->why - 1] = '\0';
    if (has_head && bytes == control_message_bytes(body) && body->kind != CONTROL_WAKE)
        dispatch_to_comm(job, body);
}

static bool take_mailbox(tsr__job *job)
{
    control_message body;
    bool moved = false;
    if (!job->mailbox || !job->control || job->control->closing)
        return false;
    if (job->control->waiting > 0)
        send_waiting(job);
    if (!tsr__transport_take_readable(job->transport))
        return false;
    for (size_t bytes; (bytes = tsr__mailbox_receive(job->mailbox, &body, sizeof body)) > 0;) {
        take_arrived(job, &body, bytes);
        moved = true;
    }
    return moved;
}

/* Receives complete in the order in which they were posted, so only posted[next] has to be checked.
 */
bool tsr__control_progress(tsr__job *job)
{
    tsr__control *control = job->control;
    bool moved = false;
    while (control && !control->closing && control->posted[control->next].has_arrived) {
        const int i = control->next;
        control_message body = control->posted[i].body;
        const tsr__message *message = &control->posted[i].message;
        const uint64_t bytes = message->state == TSR__MESSAGE_DONE ? message->size_bytes : 0;
        control->next = (i + 1) % POSTED;
        post_receive(job, i);
        take_arrived(job, &body, bytes);
        moved = true;
    }
    return take_mailbox(job) || moved;
}
