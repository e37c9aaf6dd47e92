/* tessera serve: opens the model on all ranks, and serves it on rank 0. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/lib/terminal.h"
#include "cli/serve/serve.h"

#define USUAL_CONTEXT 4096

/* Returns the last part of the model's path, as the model's name. */
static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

static tsr_status open_model(serve_server *s)
{
    const inference_options *o = &inference_chosen;
    tsr_chat_format format;
    tsr_status status = inference_open_tokenizer(&s->tokenizer);
    if (status == TSR_OK)
        status = inference_open(&s->job, USUAL_CONTEXT, serve_chosen.cache_tokens,
                                (int)serve_chosen.parallel);
    if (status == TSR_OK && serve_chosen.cache_tokens > 0 &&
        serve_chosen.cache_tokens < s->job.context)
        s->job.context = serve_chosen.cache_tokens;
    if (status == TSR_OK)
        status = tsr_generator_create(
            tsr_generator_params(.model = s->job.model, .sequences = (int)serve_chosen.parallel,
                                 .context = s->job.context, .cache_dtype = o->cache_dtype,
                                 .cache_tokens = serve_chosen.cache_tokens, .prefill = o->prefill,
                                 .piece = serve_chosen.piece,
                                 .prefix_cache = !serve_chosen.no_prefix_cache),
            &s->generator);
    if (status == TSR_OK && s->job.first && inference_chosen.format == TSR_CHAT_MODEL &&
        tsr_chat_format_of(s->tokenizer, &format) != TSR_OK)
        cli_say("note: %s with --format; until then /v1/chat/completions is refused",
                tsr_last_error());
    return status;
}

static void say_ready(serve_server *s)
{
    pthread_mutex_lock(&s->lock);
    s->ready = true;
    pthread_mutex_unlock(&s->lock);
    const bool v6 = strchr(serve_chosen.host, ':') != NULL;
    printf("http://%s%s%s:%d serves %s: %" PRId64 " texts at a time, of up to %" PRId64
           " tokens each\n",
           v6 ? "[" : "", serve_chosen.host, v6 ? "]" : "", s->port, s->name, serve_chosen.parallel,
           s->job.context);
    (void)cli_flush();
}

/* Serves until a signal or an error. */
static int serve(serve_server *s)
{
    tsr_status status = inference_join(&s->job);
    if (status == TSR_OK && s->job.first) {
        const int code = serve_http_start(s);
        if (code != CLI_DONE)
            return code;
    }
    if (status == TSR_OK)
        status = open_model(s);
    if (status == TSR_OK) {
        serve_catch_signals(s->job.first);
        if (s->job.first)
            say_ready(s);
        status = serve_schedule(s);
    }
    return status == TSR_OK ? CLI_DONE : cli_failed_in("serve", inference_problem(&s->job));
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
    serve_server s = {
        .name = name, .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    code = serve(&s);
    serve_http_stop(&s);
    tsr_generator_destroy(&s.generator);
    tsr_tokenizer_close(&s.tokenizer);
    inference_close(&s.job);
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
