#include "comm/collective_call.h"

#include <inttypes.h>
#include <stdio.h>

#include "comm/reduce/reduce.h"

static const struct {
    const char *name;
    bool has_op, has_dtype, has_count, has_root;
} kinds[TSR__CALL_KINDS] = {
    [TSR__CALL_ALL_REDUCE] = {"all_reduce", true, true, true, false},
    [TSR__CALL_REDUCE] = {"reduce", true, true, true, true},
    [TSR__CALL_REDUCE_SCATTER] = {"reduce_scatter", true, true, true, false},
    [TSR__CALL_REDUCE_SCATTER_V] = {"reduce_scatter_v", true, true, true, false},
    [TSR__CALL_ALL_GATHER] = {"all_gather", false, true, true, false},
    [TSR__CALL_ALL_GATHER_V] = {"all_gather_v", false, true, true, false},
    [TSR__CALL_BROADCAST] = {"broadcast", false, true, true, true},
    [TSR__CALL_GATHER] = {"gather", false, true, true, true},
    [TSR__CALL_GATHER_V] = {"gather_v", false, true, false, true},
    [TSR__CALL_SCATTER] = {"scatter", false, true, true, true},
    [TSR__CALL_SCATTER_V] = {"scatter_v", false, true, false, true},
    [TSR__CALL_ALL_TO_ALL] = {"all_to_all", false, true, true, false},
    [TSR__CALL_ALL_TO_ALL_V] = {"all_to_all_v", false, true, false, false},
    [TSR__CALL_BARRIER] = {"barrier", false, false, false, false},
    [TSR__CALL_SPLIT] = {"split", false, false, false, false},
    [TSR__CALL_DUPLICATE] = {"duplicate", false, false, false, false},
    [TSR__CALL_CREATE] = {"create", false, false, false, false},
    [TSR__CALL_GROW] = {"grow", false, false, false, false},
    [TSR__CALL_SEND] = {"send", false, true, true, true},
    [TSR__CALL_RECV] = {"recv", false, true, true, true},
};

const char *tsr__call_name(int kind)
{
    return kind >= 0 && kind < TSR__CALL_KINDS ? kinds[kind].name : "?";
}

static void append_text(char text[TSR__CALL_TEXT], size_t *used, const char *words)
{
    int written = snprintf(text + *used, TSR__CALL_TEXT - *used, "%s", words);
    *used += written > 0 ? (size_t)written : 0;
    if (*used >= TSR__CALL_TEXT)
        *used = TSR__CALL_TEXT - 1;
}

/* Appends details such as " (sum of 100 f32, root 3)", or nothing for a kind that has none. */
static void append_details(char text[TSR__CALL_TEXT], size_t *used, const tsr__call *call)
{
    char words[48];
    const int kind = call->kind;
    if (kind >= TSR__CALL_KINDS || !kinds[kind].has_dtype)
        return;
    append_text(text, used, " (");
    if (kinds[kind].has_op) {
        append_text(text, used, tsr__op_name((tsr_op)call->op));
        append_text(text, used, " of ");
    }
    if (kinds[kind].has_count) {
        (void)snprintf(words, sizeof words, "%" PRIu64 " ", call->count);
        append_text(text, used, words);
    }
    append_text(text, used, tsr__element_name((tsr_dtype)call->dtype));
    if (kind == TSR__CALL_SEND || kind == TSR__CALL_RECV) {
        (void)snprintf(words, sizeof words, " %s rank %d, tag %d",
                       kind == TSR__CALL_SEND ? "to" : "from", (int)call->peer, call->tag);
        append_text(text, used, words);
    } else if (kinds[kind].has_root) {
        (void)snprintf(words, sizeof words, ", root %d", (int)call->peer);
        append_text(text, used, words);
    } else if (call->counts) {
        (void)snprintf(words, sizeof words, " in blocks %04x", (unsigned)(call->counts & 0xffff));
        append_text(text, used, words);
    }
    append_text(text, used, ")");
}

const char *tsr__call_format(const tsr__call *call, char text[TSR__CALL_TEXT])
{
    size_t used = 0;
    char words[32];
    append_text(text, &used, tsr__call_name(call->kind));
    if (call->kind < TSR__CALL_SEND) {
        (void)snprintf(words, sizeof words, " #%" PRIu64, call->sequence);
        append_text(text, &used, words);
    }
    append_details(text, &used, call);
    return text;
}

bool tsr__call_same(const tsr__call *a, const tsr__call *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->op == b->op && a->peer == b->peer &&
           a->count == b->count && a->counts == b->counts && a->tag == b->tag;
}

uint32_t tsr__call_history(const tsr__call *call)
{
    const uint64_t odd = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t hash = (call->history ^ call->count << 20) * odd;
    hash = (hash ^ hash >> 31 ^ call->counts) * odd;
    hash = (hash ^ hash >> 30 ^ (uint32_t)call->peer) * odd;
    hash =
        (hash ^ hash >> 28 ^ ((uint64_t)call->kind << 16 | (uint64_t)call->dtype << 8 | call->op)) *
        odd;
    return (uint32_t)(hash >> 32);
}

uint32_t tsr__call_signature(const tsr__call *call)
{
    return (uint32_t)(call->kind & 31) << 17 | (uint32_t)(call->dtype & 15) << 13 |
           (uint32_t)(call->op & 7) << 10 | (tsr__call_history(call) & 0x3ff);
}

const char *tsr__signature_format(uint32_t signature, char text[TSR__CALL_TEXT])
{
    const int kind = (int)(signature >> 17 & 31);
    size_t used = 0;
    append_text(text, &used, tsr__call_name(kind));
    if (kind < TSR__CALL_KINDS && kinds[kind].has_dtype) {
        append_text(text, &used, " (");
        if (kinds[kind].has_op) {
            append_text(text, &used, tsr__op_name((tsr_op)(signature >> 10 & 7)));
            append_text(text, &used, " of ");
        }
        append_text(text, &used, tsr__element_name((tsr_dtype)(signature >> 13 & 15)));
        append_text(text, &used, ")");
    }
    return text;
}
