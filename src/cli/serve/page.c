/* The page at /: one file with its style and its script, page.html. */
#include <stdio.h>
#include <string.h>

#include "cli/serve/serve.h"

static const char *const lines[] = {
#include "page.html.inc"
};

#define NONCE_BYTES 16
#define PLACE "@NONCE@"

void serve_page(cli_text *page, char *policy, size_t size)
{
    unsigned char bytes[NONCE_BYTES] = {0};
    char nonce[2 * NONCE_BYTES + 1];
    FILE *random = fopen("/dev/urandom", "r");
    if (random != NULL) {
        (void)!fread(bytes, sizeof bytes, 1, random);
        fclose(random);
    }
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(nonce + 2 * i, 3, "%02x", bytes[i]);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        const char *place = strstr(lines[i], PLACE);
        const size_t before = place != NULL ? (size_t)(place - lines[i]) : strlen(lines[i]);
        cli_text_add(page, lines[i], before);
        if (place != NULL) {
            cli_text_add(page, nonce, strlen(nonce));
            cli_text_add(page, place + strlen(PLACE), strlen(place) - strlen(PLACE));
        }
    }
    snprintf(policy, size,
             "default-src 'none'; script-src 'nonce-%s'; style-src 'nonce-%s'; connect-src 'self'; "
             "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
             nonce, nonce);
}
