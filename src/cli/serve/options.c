/* The options of tessera serve. */
#include <inttypes.h>

#include "cli/serve/serve.h"

serve_options serve_chosen = {.host = "127.0.0.1",
                              .port = 8080,
                              .parallel = 4,
                              .piece = 256,
                              .queue = 64,
                              .body_limit = 16,
                              .connections = 1024,
                              .send_time = 300,
                              .grace = 30,
                              .lost_after = 120};

static const cli_option serve_option_table[] = {
    {"host", "ADDRESS",
     "address to listen on (default: 127.0.0.1); others need --api-key-file or --no-api-key",
     .text = &serve_chosen.host},
    {"port", "N", "port to listen on (default: 8080); 0: one that is free",
     .integer = &serve_chosen.port, .low = 0, .high = 65535},
    {"api-key-file", "FILE", "clients must send the key in the first line of this file",
     .text = &serve_chosen.api_key_file},
    {"no-api-key", NULL, "anybody who reaches the address may use the server",
     .flag = &serve_chosen.no_api_key},
    {"tls-cert", "FILE",
     "serve https with the certificates in this file of PEM, the server's first",
     .text = &serve_chosen.tls_cert},
    {"tls-key", "FILE", "the private key of --tls-cert, as PEM", .text = &serve_chosen.tls_key},
    {"name", "NAME", "the model's name in the API (default: the name of the file or folder)",
     .text = &serve_chosen.name},
    {"parallel", "N", "texts that are generated at the same time (default: 4)",
     .integer = &serve_chosen.parallel, .low = 1, .high = TSR_GENERATOR_MAX_SEQUENCES},
    {"piece", "N",
     "tokens of prompts that are computed between two tokens of other texts: a multiple of 64, "
     "or less (default: 256)",
     .integer = &serve_chosen.piece, .low = 1, .high = 1 << 20},
    {"cache-tokens", "N",
     "tokens that all texts together have room for (default: --parallel times --context)",
     .integer = &serve_chosen.cache_tokens, .low = 1, .high = 1 << 30},
    {"no-prefix-cache", NULL, "compute prompts even if others began with the same tokens",
     .flag = &serve_chosen.no_prefix_cache},
    {"deadline", "SECONDS", "how long a request may take, waiting included (default: no limit)",
     .real = &serve_chosen.deadline, .low = 0.001, .high = 1e9},
    {"queue", "N", "requests that may wait; further ones get status 429 (default: 64)",
     .integer = &serve_chosen.queue, .low = 0, .high = 1 << 20},
    {"body-limit", "MIB", "largest request (default: 16)", .integer = &serve_chosen.body_limit,
     .low = 1, .high = 1024},
    {"connections", "N", "most connections at the same time (default: 1024)",
     .integer = &serve_chosen.connections, .low = 1, .high = 1 << 20},
    {"send-time", "SECONDS",
     "how long a client may take to send a request, from its connection or the last answer on "
     "(default: 300)",
     .real = &serve_chosen.send_time, .low = 0.1, .high = 1e9},
    {"lost-after", "SECONDS", "a rank that does not answer for so long is lost (default: 120)",
     .real = &serve_chosen.lost_after, .low = 1, .high = 1e6},
    {"grace", "SECONDS", "how long running texts may go on after SIGINT or SIGTERM (default: 30)",
     .real = &serve_chosen.grace, .low = 0, .high = 1e6},
    {"lora", "NAME=PATH[:SCALE]",
     "an adapter that requests choose by its name: a PEFT folder, or a GGUF adapter of llama.cpp, "
     "of which SCALE multiplies the effect (default: 1); may be repeated",
     .read = inference_read_named_adapter},
    INFERENCE_FORMAT_OPTION,
    {"context", "N", "longest text in tokens (default: what the model was made for, at most 4096)",
     .integer = &inference_chosen.context, .low = 1, .high = TSR_MODEL_MAX_CONTEXT, .letter = 'c'},
    INFERENCE_DTYPE_OPTIONS,
    INFERENCE_JOB_OPTIONS,
    {0},
};

void serve_options_help(FILE *out)
{
    inference_list_formats();
    cli_options_help(out, serve_option_table);
}

int serve_options_read(int argc, char **argv)
{
    const char *words[1];
    int count = 0;
    const int code = cli_options_read("serve", serve_option_table, argc, argv, 1, words, &count);
    if (code != CLI_DONE)
        return code;
    if (count == 0 || words[0][0] == '\0')
        return cli_usage_error("serve: missing MODEL, a folder or a file");
    if (serve_chosen.api_key_file != NULL && serve_chosen.no_api_key)
        return cli_usage_error("serve: --api-key-file and --no-api-key contradict each other");
    if ((serve_chosen.tls_cert == NULL) != (serve_chosen.tls_key == NULL))
        return cli_usage_error("serve: --tls-%s is missing, which --tls-%s needs",
                               serve_chosen.tls_cert == NULL ? "cert" : "key",
                               serve_chosen.tls_cert == NULL ? "key" : "cert");
    if (serve_chosen.piece > 64 && serve_chosen.piece % 64 != 0)
        return cli_usage_error("serve: --piece is %" PRId64
                               "; it must be a multiple of 64, or less",
                               serve_chosen.piece);
    inference_chosen.model = words[0];
    const char *draft = inference_check_draft();
    if (draft != NULL)
        return cli_usage_error("serve: %s", draft);
    return CLI_DONE;
}
