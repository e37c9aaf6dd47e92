/* tessera serve: opens the model on all ranks, and serves it on rank 0. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/commands.h"
#include "cli/lib/terminal.h"
#include "cli/serve/serve.h"

/* Returns the last part of the model's path, as the model's name. */
static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

/* Says on rank 0 that requests are answered from now on. */
static void say_ready(serve_server *s)
{
    tsr_chat_format format;
    if (inference_chosen.format == TSR_CHAT_MODEL &&
        tsr_chat_format_of(s->tokenizer, &format) != TSR_OK)
        cli_say("note: %s with --format; until then /v1/chat/completions is refused",
                tsr_last_error());
    pthread_mutex_lock(&s->lock);
    s->ready = true;
    pthread_mutex_unlock(&s->lock);
    const bool v6 = strchr(serve_chosen.host, ':') != NULL;
    printf("%s://%s%s%s:%d serves %s: %" PRId64 " texts at a time, of up to %" PRId64
           " tokens each\n",
           serve_chosen.tls_cert != NULL ? "https" : "http", v6 ? "[" : "", serve_chosen.host,
           v6 ? "]" : "", s->port, s->name, serve_chosen.parallel, s->context);
    (void)cli_flush();
    serve_notify("READY=1");
}

/* Serves until a signal, or an error after which the ranks cannot go on. */
static tsr_status serve(serve_server *s, serve_schedule *d)
{
    for (;;) {
        bool ends = false;
        tsr_status status = serve_open(s);
        if (status == TSR_OK) {
            serve_catch_signals(s->listens);
            if (s->listens && !s->ready)
                say_ready(s);
            status = serve_schedule_run(d, &ends);
        }
        if (status == TSR_OK && ends)
            return TSR_OK;
        const bool lost = status != TSR_OK && serve_has_lost(s, status);
        if (status != TSR_OK && !lost)
            return status;
        serve_schedule_requeue(d);
        if (lost)
            status = serve_shrink(s);
        serve_close(s);
        if (status != TSR_OK)
            return status;
    }
}

static tsr_status find_longest_token(serve_server *s)
{
    tsr_status status = TSR_OK;
    for (int32_t id = 0; id < tsr_tokenizer_size(s->tokenizer) && status == TSR_OK; id++) {
        tsr_token_info token = TSR_INIT(tsr_token_info);
        status = tsr_tokenizer_get_token(s->tokenizer, id, &token);
        if (status == TSR_OK && (int64_t)token.size_bytes > s->longest_token)
            s->longest_token = (int64_t)token.size_bytes;
    }
    return status;
}

/* How long all ranks need to end after the last text, at most. */
#define ENDING_SECONDS 5

/* Joins the job, listens on rank 0, and serves. */
static int begin(serve_server *s)
{
    char grace[32];
    /* Until the ranks are connected, the launcher can only start all of them again. */
    inference_report("restartable serve");
    snprintf(grace, sizeof grace, "grace %.1f", serve_chosen.grace + ENDING_SECONDS);
    inference_report(grace);
    tsr_status status = inference_join(&s->job);
    s->listens = status == TSR_OK && s->job.first;
    if (s->listens) {
        const int code = serve_http_start(s);
        if (code != CLI_DONE)
            return code;
    }
    if (status == TSR_OK)
        status = inference_open_tokenizer(&s->tokenizer);
    if (status == TSR_OK)
        status = find_longest_token(s);
    serve_schedule *d = serve_schedule_create(s);
    if (status == TSR_OK)
        status = serve(s, d);
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_mutex_unlock(&s->lock);
    if (status != TSR_OK)
        serve_schedule_fail(d, inference_problem(&s->job));
    const int code =
        status == TSR_OK ? CLI_DONE : cli_failed_in("serve", inference_problem(&s->job));
    serve_close(s); /* its sequences use grammars, which the schedule keeps */
    serve_schedule_destroy(&d);
    return code;
}

/* Timeouts use the monotonic clock, because the idle server must wake up also after the system time
 * has been set back: other ranks wait for it. */
static void init_changed(pthread_cond_t *changed)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(changed, &attributes);
    pthread_condattr_destroy(&attributes);
}

static int run(int argc, char **argv)
{
    int code = serve_options_read(argc, argv);
    if (code != CLI_DONE)
        return code;
    const char *name =
        serve_chosen.name != NULL ? serve_chosen.name : name_of(inference_chosen.model);
    if (!serve_is_utf8(name, strlen(name)))
        return cli_usage_error("serve: the model's name '%s' is not UTF-8; --name gives another",
                               name);
    for (int i = 0; i < inference_chosen.adapter_count; i++) {
        const char *adapter = inference_chosen.adapters[i].name;
        if (strcmp(adapter, name) == 0 || !serve_is_utf8(adapter, strlen(adapter)))
            return cli_usage_error("serve: --lora %s=…: the name %s", adapter,
                                   strcmp(adapter, name) == 0 ? "is that of the model"
                                                              : "is not UTF-8");
    }
    serve_server s = {.name = name, .number = -1, .lock = PTHREAD_MUTEX_INITIALIZER};
    init_changed(&s.changed);
    code = begin(&s);
    serve_http_stop(&s);
    serve_close(&s);
    cli_text_free(&s.page);
    free(s.parts);
    free(s.woken);
    free(s.waking);
    serve_grammars_finish();
    tsr_tokenizer_close(&s.tokenizer);
    inference_close(&s.job);
    pthread_cond_destroy(&s.changed);
    return code;
}

static void help(FILE *out)
{
    cli_wrap(out, "Serves a model by OpenAI's HTTP API: /v1/chat/completions and /v1/completions, "
                  "with and without streaming, /v1/models, /tokenize, /detokenize, /health and "
                  "/metrics. MODEL is a Hugging Face folder or a GGUF file. Under 'tessera launch "
                  "-n N' or a cluster's launcher, the ranks divide the model, and the first one "
                  "listens. Ctrl-C lets running texts end; a second one ends them.\n");
    serve_options_help(out);
}

const cli_command cli_serve = {
    .name = "serve",
    .usage = "MODEL [options]",
    .summary = "serve a language model by OpenAI's HTTP API",
    .run = run,
    .help = help,
};
