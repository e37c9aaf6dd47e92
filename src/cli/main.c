/* tessera: the command. Each subcommand is one file. */
#include <stdio.h>
#include <string.h>

#include "tessera/base.h"

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("tessera %s\n", tsr_version());
        return 0;
    }
    fprintf(stderr, "usage: tessera --version\n");
    return 2;
}
