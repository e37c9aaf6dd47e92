/* Communicators on Windows, which lacks the sockets, shared memory and transports that several
 * processes need. A communicator has one process. Functions that need another process return
 * TSR_ERR_UNSUPPORTED, or are never called. This file replaces bootstrap/, recovery/,
 * shm/mailbox.c, shm/memfd.c and api/grow_comm.c. */
#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "comm/bootstrap/backend.h"
#include "comm/bootstrap/launch_report.h"
#include "comm/recovery/agreement.h"
#include "comm/shm/mailbox.h"
#include "comm/shm/memfd.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

static tsr_status unsupported(const char *who)
{
    return tsr__fail(TSR_ERR_UNSUPPORTED, "%s: this system has communicators of one process only",
                     who);
}

/* The bootstrap -----------------------------------------------------------------------------------
 */

struct tsr__bootstrap {
    tsr__bootstrap_info info;
    int32_t node_of[1];
};

tsr_status tsr__bootstrap_open(const tsr__bootstrap_params *params, tsr__bootstrap **out)
{
    const char *why = "chosen by the caller";
    tsr__bootstrap_kind kind = params->kind;
    if (kind == TSR__BOOTSTRAP_AUTO)
        TSR__TRY(tsr__bootstrap_choose(&kind, &why));
    const bool alone = kind == TSR__BOOTSTRAP_CALLBACK && params->rank == 0 && params->size == 1;
    if (kind != TSR__BOOTSTRAP_SINGLE && !alone)
        return unsupported("bootstrap");
    tsr__bootstrap *bootstrap = tsr__calloc(1, sizeof *bootstrap);
    if (!bootstrap)
        return TSR_ERR_NO_MEMORY;
    bootstrap->info = (tsr__bootstrap_info){
        .kind = kind, .size = 1, .local_size = 1, .node_count = 1, .node_of = bootstrap->node_of};
    tsr__log(TSR_LOG_INFO, "bootstrap: rank 0 of 1, through a single process: %s", why);
    *out = bootstrap;
    return TSR_OK;
}

tsr_status tsr__bootstrap_open_adopted(struct tsr__rendezvous *rendezvous, int32_t rank,
                                       int32_t size, const tsr__bootstrap_limit *limit,
                                       tsr__bootstrap **out)
{
    return unsupported("bootstrap");
}

const tsr__bootstrap_info *tsr__bootstrap_get_info(const tsr__bootstrap *bootstrap)
{
    return &bootstrap->info;
}

tsr_status tsr__bootstrap_exchange(tsr__bootstrap *bootstrap, const void *mine, uint64_t size_bytes,
                                   const tsr__bootstrap_limit *limit, tsr__bootstrap_gathered *out)
{
    return unsupported("bootstrap");
}

void tsr__bootstrap_gathered_finish(tsr__bootstrap_gathered *blocks)
{
    tsr__free(blocks->bytes);
    tsr__free(blocks->starts);
    *blocks = (tsr__bootstrap_gathered){0};
}

void tsr__bootstrap_close(tsr__bootstrap **bootstrap)
{
    if (!bootstrap)
        return;
    tsr__free(*bootstrap);
    *bootstrap = NULL;
}

/* After a failure ---------------------------------------------------------------------------------
 */

tsr_status tsr__recovery_open(const tsr__bootstrap_info *info, tsr__recovery **out)
{
    return unsupported("recovery");
}

void tsr__recovery_retain(tsr__recovery *recovery)
{
}

void tsr__recovery_release(tsr__recovery **recovery)
{
    *recovery = NULL;
}

void tsr__recovery_draw_seed(tsr__recovery *recovery)
{
}

void tsr__roster_derive(tsr__roster *roster)
{
}

const tsr__decision *tsr__recovery_find(const tsr__recovery *recovery, uint64_t lineage,
                                        uint32_t generation)
{
    return NULL;
}

tsr_status tsr__recovery_keep(tsr__recovery *recovery, uint64_t lineage, uint32_t generation,
                              bool without_me, const uint64_t *uids, int count)
{
    return unsupported("recovery");
}

tsr_status tsr__agree(const tsr__agreement_params *params, const tsr__decision **decision,
                      tsr__rendezvous **rendezvous)
{
    return unsupported("shrink");
}

tsr_status tsr_comm_grow(tsr_comm *comm, const tsr_comm_grow_params *params, tsr_comm **out)
{
    TSR__REQUIRE(comm && out, "grow: %s is NULL", comm ? "out" : "comm");
    return unsupported("grow");
}

/* Shared memory -----------------------------------------------------------------------------------
 */

void *tsr__shm_memory_create(size_t size_bytes, tsr__shm_memory_key *key)
{
    *key = (tsr__shm_memory_key){.file = -1};
    return NULL;
}

void tsr__shm_memory_seal(tsr__shm_memory_key *key)
{
    key->file = -1;
}

void *tsr__shm_memory_open(const tsr__shm_memory_key *key, size_t size_bytes)
{
    return NULL;
}

void tsr__shm_memory_unmap(void *memory, size_t size_bytes)
{
}

tsr__mailbox *tsr__mailbox_open(int size)
{
    return NULL;
}

void tsr__mailbox_close(tsr__mailbox **mailbox)
{
}

tsr__mailbox_key tsr__mailbox_get_key(const tsr__mailbox *mailbox)
{
    return (tsr__mailbox_key){.file = -1};
}

int tsr__mailbox_file(const tsr__mailbox *mailbox)
{
    return -1;
}

void tsr__mailbox_add(tsr__mailbox *mailbox, int peer, const tsr__mailbox_key *key)
{
}

tsr__mailbox_result tsr__mailbox_send(tsr__mailbox *mailbox, int peer, const void *data,
                                      size_t bytes)
{
    return TSR__MAILBOX_UNREACHABLE;
}

size_t tsr__mailbox_receive(tsr__mailbox *mailbox, void *data, size_t capacity)
{
    return 0;
}

/* No launcher waits for a report, because a job has one process. */
void tsr__launch_report_member(void)
{
}
