/* golden TOKENIZER GOLDEN.json…: compares a tokenizer file with golden files. It serves
 * vocabularies that are not in this repository; see golden.sh. */
#include <stdio.h>
#include <stdlib.h>

#include "tokenizer/cases.h"

int main(int argc, char **argv)
{
    tsr_tokenizer *tokenizer = NULL;
    int failed = 0;
    if (argc < 3) {
        fprintf(stderr, "usage: golden TOKENIZER GOLDEN.json…\n");
        return EXIT_FAILURE;
    }
    if (tsr_tokenizer_open(argv[1], &tokenizer) != TSR_OK) {
        fprintf(stderr, "%s\n", tsr_last_error());
        return EXIT_FAILURE;
    }
    for (int i = 2; i < argc; i++) {
        size_t cases = 0;
        int wrong = cases_check(tokenizer, argv[i], &cases);
        printf("%s: %zu of %zu cases pass\n", argv[i], cases - (size_t)wrong, cases);
        failed += wrong > 0 || cases == 0;
    }
    tsr_tokenizer_close(&tokenizer);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
