/* The chat formats: the strings before and after the texts of messages. */
#ifndef TSR_TOKENIZER_CHAT_CHAT_FORMATS_H
#define TSR_TOKENIZER_CHAT_CHAT_FORMATS_H

#include "tessera/chat.h"

/* In a format's strings, these bytes stand for the tokenizer's BOS and EOS tokens, whose spellings
 * replace them. */
#define TSR__CHAT_BOS '\1'
#define TSR__CHAT_EOS '\2'

typedef struct tsr__chat_format {
    const char *name;
    const char *bos; /* what a conversation starts with if the tokenizer adds no ids itself */
    /* What always comes before the first message: with `efforts`, the first string, the effort of
     * reasoning, the second string, the third one if there are tools, and the last one; otherwise
     * the first one. */
    const char *introduction[4];
    bool efforts;
    bool strips;           /* removes spaces at both ends of the user's texts and the replies */
    bool strips_system;    /* removes them from the system's text */
    bool system_in_user;   /* puts the system's message into the user's first one */
    const char *system[2]; /* before and after the text of the system */
    const char *user[2];   /* before and after the text of the user */
    const char *header;    /* what begins a reply */
    const char *begin;     /* follows the header if the model shall write the reply */
    /* Replaces `begin` if the model shall not think: an empty reasoning. Counts only if the
     * vocabulary has <think>, if that is in it. NULL: the same as `begin` */
    const char *answer;
    const char *before; /* follows the header if the text of the reply is given */
    const char *end;    /* ends a reply */
    /* What follows the token that ends a reply. If NULL, this token is the first one of the user's
     * next message, `user[0]`, which then continues after it. */
    const char *after_end;
    /* Around the list of tools, before calls, and around a result. NULL: the format has none */
    const char *tools[2];
    const char *calls;
    const char *result[2];
    /* If these are not NULL, the name of the tool follows `calls` and result[0], and these strings
     * the name; `call_end` ends calls instead of `end`. */
    const char *call_name, *result_name, *call_end;
    /* If these are not NULL, the id of the call follows `call_name` and result[0], and these
     * strings the id. */
    const char *call_id, *result_id;
    bool several_calls;        /* messages with calls that follow each other are one reply */
    bool tools_replace_system; /* the list of tools is the first message */
    /* Around what the assistant writes before calls, after its header. NULL: the format has none */
    const char *reasoning[2], *preamble[2];
    bool one_header; /* they and what follows have one header; reasoning may be before replies */
} tsr__chat_format;

/* How a template begins replies with reasoning between <think> and </think>. */
typedef enum tsr__chat_begin {
    TSR__CHAT_BEGIN_HEADER,   /* with the header; the model writes <think> if it thinks */
    TSR__CHAT_BEGIN_THINKS,   /* with <think> */
    TSR__CHAT_BEGIN_MAY_THINK /* with <think> if the caller wants that, otherwise with an answer */
} tsr__chat_begin;
/* Finds out how a template, which may be NULL, begins replies. */
tsr__chat_begin tsr__chat_template_begin(const char *template);

/* Returns a format of the table, or NULL for TSR_CHAT_MODEL and values out of range. */
const tsr__chat_format *tsr__chat_format_get(tsr_chat_format format);

#endif
