/* cmd.h - the commands of the program. Each has a file, or a folder, with its table of options on
 * top. Exit status: 0 done, 1 failed, 2 misused. */
#ifndef PL_CMD_H
#define PL_CMD_H

#include "cmd/options/options.h"

extern const struct command command_authority, command_average, command_bench, command_calc,
    command_conform, command_convert, command_dash, command_demo, command_dht, command_doctor,
    command_finetune, command_generate, command_join, command_lab, command_new_run, command_peer,
    command_prepare, command_show, command_tokenize, command_train, command_upload, command_vqgan;

#endif
