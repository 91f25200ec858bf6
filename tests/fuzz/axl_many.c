/* The C decoder, for many archives in one process: lines "archive<tab>output" on stdin, "= status" on stdout. */

#include <setjmp.h>
#include <stdlib.h>
#include <unistd.h>

static jmp_buf ended;
#define exit(status) longjmp(ended, status)
#define main decoder_main
#include "../../tools/axl/axl.c"
#undef main

enum { SECONDS = 30 };

static void forget(void) {
    output = NULL; /* `fail` has closed it */
    release(NULL);
    memory_limit = MAX_MEMORY;
    fields_known = 0;
    memset(&config, 0, sizeof(config));
    memset(&model, 0, sizeof(model));
    memset(&network, 0, sizeof(network));
    memset(&target, 0, sizeof(target));
}

int main(void) {
    static char line[4096];
    setvbuf(stdout, NULL, _IONBF, 0);
    while (fgets(line, sizeof(line), stdin)) {
        line[strcspn(line, "\n")] = 0;
        char *words[] = {"axl", strtok(line, "\t"), strtok(NULL, "\t")};
        alarm(SECONDS);
        int status = setjmp(ended);
        if (!status) status = decoder_main(3, words);
        forget();
        printf("= %d\n", status);
    }
    return 0;
}
