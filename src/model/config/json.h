/* What the readers of config.json share. */
#ifndef TSR_MODEL_CONFIG_JSON_H
#define TSR_MODEL_CONFIG_JSON_H

#include <string.h>

#include "model/config/config.h"
#include "json/json.h"

typedef struct tsr__config_reader {
    tsr__json json;
    const tsr__model_files *files;
    tsr__facts *facts;
    char key[TSR__JSON_TEXT];
    char type[64];       /* model_type */
    char inner_type[64]; /* model_type of text_config, the configuration of a text model inside one
                            for images and text */
} tsr__config_reader;

/* json.c */

/* Returns whether the next value is null, and skips it then. A value of null counts as missing. */
bool tsr__config_is_null(tsr__config_reader *r);
/* Read a value; null leaves *out as it is. */
tsr_status tsr__config_read_integer(tsr__config_reader *r, int64_t *out) TSR_NODISCARD;
tsr_status tsr__config_read_real(tsr__config_reader *r, double *out) TSR_NODISCARD;
tsr_status tsr__config_read_bool(tsr__config_reader *r, int *out) TSR_NODISCARD;
/* Reads an object: calls `read` for each member, whose key is r->key. */
tsr_status tsr__config_read_members(tsr__config_reader *r,
                                    tsr_status (*read)(tsr__config_reader *)) TSR_NODISCARD;
/* Refuses a model in which this member is true, because no supported family computes it. */
tsr_status tsr__config_refuse_if_set(tsr__config_reader *r) TSR_NODISCARD;

/* Returns whether the member that is being read has this name. A family may lack the name. */
static inline bool tsr__config_is_key(const tsr__config_reader *r, const char *name)
{
    return name && strcmp(name, r->key) == 0;
}

/* json_parts.c: reads a member about experts, delta nets, short convolutions, rotary positions or
 * the types of layers, or layers after the last. Otherwise sets *known to false, and reads nothing.
 */
tsr_status tsr__config_read_part(tsr__config_reader *r, bool *known) TSR_NODISCARD;

#endif
