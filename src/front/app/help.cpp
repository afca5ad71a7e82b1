// What `lockstep --help` says.
#include "front/app/verbs.h"

namespace lockstep::app {

std::string general_help() {
  return R"(lockstep: trains models on every GPU you have

  lockstep train -f FILE     train on all GPUs, or on two CPU ranks where there is none
  lockstep ask RUN WISH      have a run that trains save, evaluate, sample or stop
  lockstep ui                a page in the browser: start, watch and compare runs, talk to models
  lockstep watch [RUN ...]   runs on a live screen: progress, loss, each rank's time, GPUs, log
  lockstep runs              list runs, compare them, plot their curves
  lockstep generate          text from a model folder or a run: a prompt, a chat, a file of prompts
  lockstep chat              talk to a model in the terminal
  lockstep export            a checkpoint as a Hugging Face model folder
  lockstep merge             adapters folded into their model
  lockstep data              look at records, text to tokens, tokenizers from text
  lockstep config            show, explain and describe settings
  lockstep devices           what there is to train on
  lockstep bench             how fast a step, each kernel and each collective is here
  lockstep plan              what fits on which GPUs, and what more of them would bring
  lockstep check             is this machine fit to train, step by step, with a fix for what is not
  lockstep info              versions, devices, how they are connected, variables that matter, ranks of runs
  lockstep explain           what an error code, a message or a log means, and what to do
  lockstep launch            train as answered once: lockstep launch config
  lockstep completion        completions for bash, zsh and fish, and man pages

  lockstep VERB --help       the flags of a verb
  lockstep --version         --verbose: what it is built of and runs with, and the licenses of what is inside

Start here:  lockstep train -f models/nano.yaml
)";
}

}  // namespace lockstep::app
