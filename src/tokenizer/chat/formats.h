/* The chat formats: what stands around the texts of messages. */
#ifndef TSR_TOKENIZER_CHAT_FORMATS_H
#define TSR_TOKENIZER_CHAT_FORMATS_H

#include "tessera/chat.h"

/* In the strings of a format these stand for the spellings of the tokenizer's BOS and EOS. */
#define TSR__CHAT_BOS '\1'
#define TSR__CHAT_EOS '\2'

typedef struct tsr__chat_format {
    const char *name;
    bool needs_bos;        /* at the start, also if the tokenizer adds none by itself */
    bool strips;           /* spaces at both ends of texts */
    bool system_in_user;   /* the system's message stands inside the first one of the user */
    const char *system[2]; /* before and after a text */
    const char *user[2];   /* before and after a text */
    const char *header;    /* of a reply, after which the model goes on */
    const char *before;    /* a reply that is given, after its header */
    const char *end;       /* of a reply */
    const char *after_end; /* what follows the token that ends a reply */
} tsr__chat_format;

/* Returns a format of the table, or NULL for TSR_CHAT_MODEL and values out of range. */
const tsr__chat_format *tsr__chat_format_get(tsr_chat_format format);

#endif
