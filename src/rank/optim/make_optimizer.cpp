// From the setting to the class.
#include "base/error.h"
#include "rank/optim/adafactor.h"
#include "rank/optim/adamw_8bit.h"
#include "rank/optim/elementwise.h"
#include "rank/optim/muon.h"
#include "rank/optim/optim.h"

namespace lockstep::optim {

std::unique_ptr<Optimizer> make_optimizer(const std::vector<model::Unit*>& units, const Settings& settings) {
  std::vector<model::Unit*> trained;
  for (model::Unit* unit : units) {
    if (unit->gradients().defined()) trained.push_back(unit);
  }
  switch (settings.method) {
    case config::Optimizer::adamw:
    case config::Optimizer::lion:
    case config::Optimizer::sgd: return std::make_unique<Elementwise>(std::move(trained), settings);
    case config::Optimizer::adamw_8bit: return std::make_unique<AdamW8bit>(std::move(trained), settings);
    case config::Optimizer::adafactor: return std::make_unique<Adafactor>(std::move(trained), settings);
    case config::Optimizer::muon: return std::make_unique<Muon>(std::move(trained), settings);
  }
  throw base::Bug("an optimizer that has no class");
}

std::unique_ptr<Optimizer> make_optimizer(const config::RunConfig& config, const std::vector<model::Unit*>& units, double nominal_tokens) {
  return make_optimizer(units, settings_for(config, nominal_tokens));
}

}  // namespace lockstep::optim
