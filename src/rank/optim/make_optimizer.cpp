// From the setting to the class.
#include "base/error.h"
#include "rank/optim/adafactor.h"
#include "rank/optim/adamw_8bit.h"
#include "rank/optim/elementwise.h"
#include "rank/optim/muon.h"
#include "rank/optim/optim.h"

namespace lockstep::optim {

std::unique_ptr<Optimizer> make_optimizer(const model::Store& store, const Settings& settings) {
  switch (settings.method) {
    case config::Optimizer::adamw:
    case config::Optimizer::lion:
    case config::Optimizer::sgd: return std::make_unique<Elementwise>(store, settings);
    case config::Optimizer::adamw_8bit: return std::make_unique<AdamW8bit>(store, settings);
    case config::Optimizer::adafactor: return std::make_unique<Adafactor>(store, settings);
    case config::Optimizer::muon: return std::make_unique<Muon>(store, settings);
  }
  throw base::Bug("an optimizer that has no class");
}

std::unique_ptr<Optimizer> make_optimizer(const config::RunConfig& config, const model::Store& store, double nominal_tokens) {
  return make_optimizer(store, settings_for(config, nominal_tokens));
}

}  // namespace lockstep::optim
