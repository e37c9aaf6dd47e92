/* adapter_config.json, as PEFT has it. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "model/lora/lora.h"
#include "shard/formats/header_file.h"
#include "json/json.h"
#include "json/json_write.h"

#define WHAT "adapter_config.json"
#define MAX_BYTES (1 << 24)
#define MAX_TEXT 256

/* Reading ------------------------------------------------------------------------------------ */

/* Reads a member that must be absent in effect: null, false, "none", an empty list or object. */
static tsr_status read_absent(tsr__json *json, const char *key)
{
    char text[MAX_TEXT], name[TSR__JSON_TEXT];
    const char next = tsr__json_peek(json);
    bool more = false, value = false;
    *text = '\0';
    if (next == 'n')
        return tsr__json_skip(json);
    if (next == '"') {
        TSR__TRY(tsr__json_string(json, sizeof text, text));
        more = strcmp(text, "none") != 0;
    } else if (next == '[') {
        TSR__TRY(tsr__json_enter(json, '['));
        TSR__TRY(tsr__json_element(json, &more));
        if (more)
            TSR__TRY(tsr__json_string(json, sizeof text, text));
    } else if (next == '{') {
        TSR__TRY(tsr__json_enter(json, '{'));
        TSR__TRY(tsr__json_member(json, name, &more));
    } else {
        TSR__TRY(tsr__json_bool(json, &value));
        more = value;
        strcpy(text, "true");
    }
    if (!more)
        return TSR_OK;
    return tsr__fail(TSR_ERR_UNSUPPORTED, WHAT ": %s is %s, which is not supported", key,
                     *text ? text : "not empty");
}

/* Reads an object of patterns for the names of modules, each with a number. */
static tsr_status read_patterns(tsr__json *json, const char *key, tsr__lora_pattern *patterns,
                                int *count)
{
    char module[TSR__JSON_TEXT];
    bool more = true;
    if (tsr__json_peek(json) == 'n')
        return tsr__json_skip(json);
    TSR__TRY(tsr__json_enter(json, '{'));
    while (true) {
        TSR__TRY(tsr__json_member(json, module, &more));
        if (!more)
            return TSR_OK;
        if (strpbrk(module, "\\^$*+?()[]{}|"))
            return tsr__fail(TSR_ERR_UNSUPPORTED,
                             WHAT ": %s has '%s'; only names of modules are supported, not regular "
                                  "expressions",
                             key, module);
        TSR__REQUIRE(*count < TSR__LORA_PATTERNS, WHAT ": %s has more than %d names", key,
                     TSR__LORA_PATTERNS);
        tsr__lora_pattern *pattern = &patterns[*count];
        TSR__TRY(tsr__json_real(json, &pattern->value));
        TSR__REQUIRE(pattern->value > 0 && pattern->value <= TSR__LORA_MAX_ALPHA,
                     WHAT ": %s of '%s' is %g", key, module, pattern->value);
        pattern->module = tsr__strdup(module);
        if (!pattern->module)
            return TSR_ERR_NO_MEMORY;
        ++*count;
    }
}

static tsr_status read_member(tsr__json *json, const char *key, tsr__lora_config *out)
{
    static const char *const absent[] = {"modules_to_save",   "bias",
                                         "lora_bias",         "trainable_token_indices",
                                         "target_parameters", "layer_replication",
                                         "use_qalora",        NULL};
    char text[MAX_TEXT];
    uint64_t rank;
    if (strcmp(key, "peft_type") == 0) {
        TSR__TRY(tsr__json_string(json, sizeof text, text));
        return strcmp(text, "LORA") == 0
                   ? TSR_OK
                   : tsr__fail(TSR_ERR_UNSUPPORTED, WHAT ": peft_type is '%s'; LORA is supported",
                               text);
    }
    if (strcmp(key, "r") == 0) {
        TSR__TRY(tsr__json_integer(json, &rank));
        TSR__REQUIRE(rank >= 1 && rank <= INT32_MAX, WHAT ": r is %" PRIu64, rank);
        out->rank = (int64_t)rank;
        return TSR_OK;
    }
    if (strcmp(key, "lora_alpha") == 0) {
        TSR__TRY(tsr__json_real(json, &out->alpha));
        TSR__REQUIRE(out->alpha > 0 && out->alpha <= TSR__LORA_MAX_ALPHA,
                     WHAT ": lora_alpha is %g; a number above 0, at most %g, is needed", out->alpha,
                     TSR__LORA_MAX_ALPHA);
        return TSR_OK;
    }
    if (strcmp(key, "use_rslora") == 0)
        return tsr__json_bool(json, &out->rank_stabilised);
    if (strcmp(key, "use_dora") == 0)
        return tsr__json_bool(json, &out->dora);
    if (strcmp(key, "rank_pattern") == 0)
        return read_patterns(json, key, out->ranks, &out->rank_count);
    if (strcmp(key, "alpha_pattern") == 0)
        return read_patterns(json, key, out->alphas, &out->alpha_count);
    return tsr__json_find(absent, key) >= 0 ? read_absent(json, key) : tsr__json_skip(json);
}

static tsr_status read_config(tsr__json *json, tsr__lora_config *out)
{
    char key[TSR__JSON_TEXT];
    bool more = true;
    TSR__TRY(tsr__json_enter(json, '{'));
    while (true) {
        TSR__TRY(tsr__json_member(json, key, &more));
        if (!more)
            break;
        TSR__TRY(read_member(json, key, out));
    }
    TSR__TRY(tsr__json_end(json));
    TSR__REQUIRE(out->rank > 0, WHAT ": there is no r");
    TSR__REQUIRE(out->alpha > 0, WHAT ": there is no lora_alpha");
    return TSR_OK;
}

tsr_status tsr__lora_config_read(const char *path, tsr__lora_config *out)
{
    tsr__file file;
    char *text = NULL;
    TSR__TRY(tsr__file_open(path, &file));
    file.what = WHAT;
    tsr_status status = file.size > MAX_BYTES
                            ? tsr__fail(TSR_ERR_INVALID,
                                        WHAT ": the file has %" PRIu64 " bytes; at most %d are "
                                             "possible",
                                        file.size, MAX_BYTES)
                            : tsr__file_load(&file, 0, file.size, "the file", &text);
    if (status == TSR_OK)
        status = read_config(&(tsr__json){.text = text, .size = file.size, .what = WHAT}, out);
    tsr__free(text);
    tsr__file_close(&file);
    return status;
}

void tsr__lora_config_finish(tsr__lora_config *config)
{
    for (int i = 0; i < config->rank_count; i++)
        tsr__free(config->ranks[i].module);
    for (int i = 0; i < config->alpha_count; i++)
        tsr__free(config->alphas[i].module);
}

double tsr__lora_pattern_value(const tsr__lora_pattern *patterns, int count, const char *module,
                               double usual)
{
    const size_t length = strlen(module);
    for (int i = 0; i < count; i++) {
        const size_t own = strlen(patterns[i].module);
        if (own <= length && strcmp(module + length - own, patterns[i].module) == 0 &&
            (own == length || module[length - own - 1] == '.'))
            return patterns[i].value;
    }
    return usual;
}

/* Writing ------------------------------------------------------------------------------------ */

/* Gives the module's name or, with `last_only`, the last part of it. Returns NULL if it has none.
 */
static const char *name_of(const tsr_lora *lora, const tsr__lora_module *module, int64_t expert,
                           bool last_only, tsr__lora_place *place)
{
    if (tsr__lora_find_place(lora->stack, module, expert, false, place) != TSR_OK)
        return NULL; /* it has been found before */
    const char *last = strrchr(place->name, '.');
    return last_only && last ? last + 1 : place->name;
}

/* Prints the modules whose rank, or alpha, is not the usual one. */
static void print_patterns(const tsr_lora *lora, bool ranks, tsr__json_writer *w)
{
    bool first = true;
    tsr__json_print(w, "{");
    for (size_t i = 0; i < lora->module_count; i++) {
        const tsr__lora_module *m = &lora->modules[i];
        if (ranks ? m->rank == lora->rank : m->alpha == lora->alpha)
            continue;
        for (int64_t e = 0; e < (m->experts > 0 ? m->experts : 1); e++) {
            tsr__lora_place place;
            const char *name = name_of(lora, m, e, false, &place);
            tsr__json_print(w, first ? "" : ", ");
            tsr__json_print_string(w, name ? name : "");
            tsr__json_print(w, ": ");
            tsr__json_print_real(w, ranks ? (double)m->rank : m->alpha);
            first = false;
        }
    }
    tsr__json_print(w, "}");
}

/* Returns whether a target before `target` has modules with this last part of their names. */
static bool is_printed(const tsr_lora *lora, int target, const char *name)
{
    tsr__lora_place place;
    for (size_t i = 0; i < lora->module_count; i++) {
        const char *own = lora->modules[i].target < target
                              ? name_of(lora, &lora->modules[i], 0, true, &place)
                              : NULL;
        if (own && strcmp(own, name) == 0)
            return true;
    }
    return false;
}

static void print_targets(const tsr_lora *lora, tsr__json_writer *w)
{
    bool first = true;
    tsr__json_print(w, "[");
    for (int t = 0; t < TSR__LORA_TARGETS; t++)
        for (size_t i = 0; i < lora->module_count; i++) {
            tsr__lora_place place;
            if (lora->modules[i].target != t)
                continue;
            const char *name = name_of(lora, &lora->modules[i], 0, true, &place);
            if (name && !is_printed(lora, t, name)) {
                tsr__json_print(w, first ? "" : ", ");
                tsr__json_print_string(w, name);
                first = false;
            }
            break;
        }
    tsr__json_print(w, "]");
}

/* Returns whether the adapter has modules in a layer. */
static bool has_layer(const tsr_lora *lora, int layer)
{
    for (size_t i = 0; i < lora->module_count; i++)
        if (lora->modules[i].layer == layer)
            return true;
    return false;
}

/* Prints the layers that have modules, unless all have some. The head is in no layer, so an adapter
 * of it leaves them out. */
static void print_layers(const tsr_lora *lora, tsr__json_writer *w)
{
    const int layers = lora->stack->config->layers;
    bool all = true, first = true;
    for (int i = 0; i < layers; i++)
        all = all && has_layer(lora, i);
    if (all || has_layer(lora, -1))
        return;
    tsr__json_print(w, ",\n  \"layers_to_transform\": [");
    for (int i = 0; i < layers; i++)
        if (has_layer(lora, i)) {
            tsr__json_print(w, "%s%d", first ? "" : ", ", i);
            first = false;
        }
    tsr__json_print(w, "]");
}

static void print_config(const void *user, tsr__json_writer *w)
{
    const tsr_lora *lora = user;
    tsr__json_print(w, "{\n  \"peft_type\": \"LORA\",\n  \"task_type\": \"CAUSAL_LM\",\n"
                       "  \"base_model_name_or_path\": null,\n  \"inference_mode\": true,\n");
    tsr__json_print(w, "  \"r\": %d,\n  \"lora_alpha\": ", lora->rank);
    tsr__json_print_real(w, lora->alpha);
    tsr__json_print(w, ",\n  \"lora_dropout\": ");
    tsr__json_print_real(w, lora->dropout);
    tsr__json_print(w, ",\n  \"use_rslora\": %s,\n", lora->rank_stabilised ? "true" : "false");
    tsr__json_print(w, "  \"use_dora\": %s,\n  \"bias\": \"none\",\n  \"fan_in_fan_out\": %s,\n",
                    lora->dora ? "true" : "false",
                    lora->stack->family->hf_transposed ? "true" : "false");
    tsr__json_print(w, "  \"init_lora_weights\": true,\n  \"modules_to_save\": null,\n"
                       "  \"rank_pattern\": ");
    print_patterns(lora, true, w);
    tsr__json_print(w, ",\n  \"alpha_pattern\": ");
    print_patterns(lora, false, w);
    tsr__json_print(w, ",\n  \"target_modules\": ");
    print_targets(lora, w);
    print_layers(lora, w);
    tsr__json_print(w, "\n}\n");
}

tsr_status tsr__lora_config_print(const tsr_lora *lora, char **text, size_t *length)
{
    return tsr__json_print_document(print_config, lora, 0, text, length);
}
