// The lists and plots of the built-in stories. Cause and effect stay within a plot; the lists keep the stories apart.
#include "corpus/stories/text.h"

namespace lockstep::corpus {
namespace {

constexpr StoryList lists[] = {
    {"girl names", "Lily|Mia|Anna|Emma|Zoe|Ruby|Nora|Ella|Lucy|Rosa|Ivy|Clara|Sofia|Maya|Hana|Amina|Greta|Tilda|Leila|Wendy"},
    {"boy names", "Tom|Ben|Max|Leo|Sam|Jack|Finn|Oscar|Hugo|Theo|Noah|Omar|Ravi|Emil|Felix|Toby|Pedro|Kofi|Yuki|Anton"},
    {"beings", "rabbit|bear|fox|mouse|cat|dog|duck|frog|squirrel|hedgehog|turtle|lion|elephant|pig|goat|otter"},
    {"elders", "owl|old man|old woman|farmer|baker|wizard|teacher|fisherman"},
    {"trait", "brave|kind|curious|shy|clever|gentle|funny|quiet|cheerful|playful|proud|careful|stubborn|friendly|little|young"},
    {"home", "small house|wooden hut|tall tower|cozy cottage|house with a red roof|tiny house|big house|little hut"},
    {"place", "forest|river|lake|hill|beach|park|meadow|village|garden|market|farm|pond|field|castle|bridge"},
    {"color", "red|blue|green|yellow|purple|orange|pink|white|black|golden|silver|brown"},
    {"toy", "ball|doll|kite|toy car|drum|teddy bear|hat|scarf|book|toy boat|bell|whistle|balloon|wagon|robot|crown|ring|key|blanket|flute"},
    {"fruit", "apple|pear|banana|orange|peach|plum|lemon|carrot|berry"},
    {"treat", "cookie|cake|pie|sandwich|muffin|pancake|pizza|apple pie|honey cake"},
    {"animal", "bird|kitten|puppy|lamb|squirrel|mouse|hedgehog|baby duck|baby fox|butterfly"},
    {"spot",
     "under a bench|behind a big tree|in the tall grass|near the pond|under a pile of leaves|behind a rock|in a bush|"
     "inside an old box|next to the gate|under the stairs"},
    {"hobby", "sing|dance|draw|read books|climb trees|play outside|run very fast|count the stars|help others|swim|tell stories|bake"},
    {"fear", "the dark|thunder|deep water|loud noises|big dogs|high places|spiders|the old barn"},
    {"weather", "sunny|rainy|windy|cold|snowy|warm|cloudy|foggy"},
    {"time", "morning|afternoon|evening"},
    {"day", "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday"},
    {"flower", "rose|sunflower|tulip|tree|bean|pumpkin|tomato"},
    {"thing", "vase|cup|lamp|clock|plate|mirror|window|bowl"},
    {"magic", "lamp|stone|shell|mirror|feather|coin|wand"},
    {"building", "tower|castle|boat|bridge|tree house|snowman|fort|nest"},
    {"number", "two|three|four|five|six|seven|ten"},
};

constexpr std::string_view meet =
    "[Once upon a time|Long ago|One day|Once], there was a {trait} {A:is} named {A}. "
    "[{A:he} lived in a {home} near the {place}.|{A:he} lived with {A:his} {P} in a {home}.|{A}'s home was a {home} near the {place}.] "
    "[|{A} loved to {hobby}.|Every day, {A} liked to {hobby}.|More than anything, {A} loved to {hobby}.] ";

constexpr std::string_view meet_both =
    "[Once upon a time|Long ago|Once], there were two friends named {A} and {B}. "
    "{A} was a {trait} {A:is}, and {B} was a {other trait} {B:is}. "
    "[They played together every day.|They both loved to {hobby}.|They lived near the {place}.] ";

constexpr StoryPlot plots[] = {
    // Something is lost and found.
    {meet,
     "{A} had a {color} {toy}. [It was {A:his} favorite thing in the world.|{A:he} took it everywhere.|It was a gift from {A:his} {P}.] "
     "One {weather} {time}, {A} went to the {place} with the {toy}. [{A:he} ran and played for a long time.|{A:he} played until the sun "
     "was low.] "
     "When it was time to go home, the {toy} was gone! {A} [looked everywhere|looked all around], but {A:he} could not find it. "
     "[{A:he} sat down and began to cry.|{A:he} felt very sad.|Big tears ran down {A:his} face.] "
     "[Then|Just then], a {B:is} named {B} came by. \"Why are you [sad|crying]?\" asked {B}. \"I lost my {color} {toy},\" said {A}. "
     "\"Don't worry,\" said {B}. \"I will help you [look|find it].\" "
     "They looked and looked. At last, {B} saw something {color} {spot}. It was the {toy}! ",
     "{A} was so happy that {A:he} [jumped up and down|gave {B} a big hug|laughed and danced]. "
     "\"Thank you, {B},\" said {A}. [From that day on, {A} and {B} were best friends.|They played with the {toy} together until dark.|"
     "After that, {A} always took good care of the {toy}.]"},
    // Sharing.
    {meet,
     "One {time}, {A:his} {P} gave {A:him} a {treat}. [It smelled very good.|It looked so good.|It was still warm.] "
     "{A} walked to the {place} to eat it. On the way, {A:he} saw a {B:is} who sat all alone. {B:his} name was {B}. "
     "{B} looked [sad|hungry|tired and hungry]. \"What is wrong?\" asked {A}. \"I have [nothing to eat|no food today],\" said {B}. "
     "{A} looked at the {treat}. [{A:he} was hungry too.|{A:he} wanted to eat it all.] "
     "But {A:he} [thought about {B}|knew what it was like to be hungry|had a kind heart]. \"Here,\" said {A}. \"Let's share.\" "
     "{A} gave half of the {treat} to {B}. ",
     "{B} smiled [for the first time that day|a big smile]. \"You are very kind,\" said {B}. "
     "[They ate together and talked until dark.|The {treat} was small, but they both felt full and happy.] "
     "[{A} learned that food is better when you share it.|The next day, {B} came back with a {fruit} for {A}.|"
     "{A} went home with a new friend.]"},
    // A fear is met.
    {meet,
     "But {A} was afraid of {fear}. [{A:he} never told anyone.|The others laughed at {A:him}.|Every time {A:he} thought of it, {A:he} hid "
     "under the bed.] "
     "One {weather} {time}, {A:his} friend {B} [called for help|was in trouble]. {B} was [stuck|all alone] near the {place}, and the only "
     "way there "
     "was [past|through] {fear}. {A}'s heart [beat fast|was loud]. \"I am scared,\" {A:he} said. \"But {B} needs me.\" "
     "{A} [took a deep breath|closed {A:his} eyes] and went. [Step by step, {A:he} walked on.|{A:he} did not look back.|{A:he} sang a song "
     "to feel brave.] "
     "At last, {A:he} found {B}. \"You came!\" cried {B}. ",
     "{A} took {B} by the hand, and they went home together. {A:his} {P} was very proud. "
     "[\"Being brave does not mean you are not scared,\" said {A:his} {P}. \"It means you try.\"|After that, {A} was not afraid of {fear} "
     "anymore.|"
     "That night, {A} slept well and had good dreams.]"},
    // Something is built, falls, and is built again.
    {meet_both,
     "One {weather} {time}, they wanted to build a {building} [at the {place}|near the {place}]. "
     "{A} [found some wood|brought many stones|carried the heavy things], and {B} [found a rope|had a good plan|made it strong]. "
     "They worked [all day|for a long time]. But then [a strong wind came|it began to rain very hard|{A} slipped and fell], and the "
     "{building} fell down! "
     "[\"It is your fault!\" said {A}. {B} was hurt and walked away.|{B} wanted to cry. \"All our work is gone,\" {B:he} said.|"
     "They looked at it and did not know what to say.] "
     "[After a while|Soon], {A} said, \"I am sorry. Let's try again.\" {B} nodded. This time, they [worked slowly|helped each other|used "
     "bigger stones]. ",
     "When the moon came up, the {building} was done. It was [strong|big and beautiful|even better than before]. "
     "[\"We did it!\" they cried.|They sat next to it and looked at the stars.] "
     "[They learned that good things take time.|They knew that they could do anything together.|From then on, they never gave up.]"},
    // A hurt animal.
    {meet,
     "One {weather} {time}, {A} heard a small sound near the {place}. It was a little {animal}. The {animal} was hurt and could not move. "
     "[\"Poor thing,\" said {A}.|\"Don't be afraid,\" said {A}. \"I will help you.\"] "
     "{A} picked it up [very carefully|with soft hands] and took it home. {A:his} {P} [found a small box|made a warm bed] for the "
     "{animal}. "
     "Every day, {A} gave it food and water. [{A:he} sang to it at night.|{A:he} told it stories.|{A:he} sat next to it for hours.] "
     "After {number} days, the {animal} could move again. \"It is time to let it go,\" said {A:his} {P}. "
     "{A} was sad, but {A:he} knew it was right. {A:he} [opened the door|took it back to the {place}], and the {animal} was free. ",
     "[The next day, there was a sound at the window. It was the {animal}! It came back to say thank you.|"
     "The {animal} looked back one more time. Then it was gone. {A} smiled and waved.|"
     "Many days later, {A} saw the {animal} again. It had {number} babies. {A} was very happy.]"},
    // A rule is broken.
    {meet,
     "One {time}, {A:his} {P} made a {treat} for the party. \"Do not eat it before the party,\" said {A:his} {P}. \"I will not,\" said "
     "{A}. "
     "But the {treat} smelled so good! {A} wanted [just one bite|only a little taste]. [{A:he} looked around. No one was there.|{A:he} "
     "waited until {P:name} was gone.] "
     "{A} took one bite. Then {A:he} took another. Soon, the {treat} was all gone! {A}'s tummy began to hurt. "
     "When {P:name} came back, {P:he} asked, \"Where is the {treat}?\" "
     "[{A} looked at the floor. \"I ate it,\" {A:he} said. \"I am sorry.\"|At first, {A} said nothing. Then {A:he} began to cry. \"I ate "
     "it all,\" {A:he} said.] ",
     "{P:name} was [not happy|a little angry], but {P:he} was glad that {A} told the truth. [\"Let's make a new one together,\" said "
     "{P:name}.|\"Next time, please wait,\" said {P:name}.] "
     "{A} helped to [clean the kitchen|make a new {treat}]. [{A:he} never did it again.|After that, {A} always listened to {A:his} {P}.|"
     "The party was fun, and {A} shared with everyone.]"},
    // A birthday that seems forgotten.
    {meet,
     "It was {day}, and it was {A}'s birthday. But when {A} woke up, no one said a word. {A:his} {P} was [busy|not at home]. "
     "{A} went to see {B}, but {B} said, \"I have no time today.\" [{A} felt very sad.|{A} thought that everyone forgot.] "
     "{A:he} walked alone to the {place} and sat there [for a long time|until the sun was low]. "
     "When {A} came home, the house was dark. {A:he} opened the door. \"Surprise!\" cried [everyone|all {A:his} friends]. "
     "There was a big cake and a {color} balloon. {B} gave {A} a {other color} {toy}. ",
     "\"We did not forget,\" said {B} with a smile. \"We wanted to surprise you!\" {A} [laughed and laughed|was so happy that {A:he} "
     "cried|hugged everyone]. "
     "[It was the best birthday ever.|They danced and sang all night.|{A} made a wish, but {A:he} had all {A:he} wanted.]"},
    // A race.
    {meet_both,
     "One {weather} {day}, there was a big race at the {place}. \"I will win,\" said {A}. \"We will see,\" said {B}. "
     "[One, two, three, go!|\"Go!\" cried the {E}.] They ran as fast as they could. {A} was first, and {B} was right behind. "
     "Then {A} fell over a [rock|log]. \"Ow! My leg!\" cried {A}. {B} could win now. [The end of the race was so near.|Everyone looked at "
     "{B}.] "
     "But {B} stopped. [{B:he} went back to {A}.|{B:he} could not leave a friend behind.] \"Hold my hand,\" said {B}. ",
     "They walked to the end together, slowly, hand in hand. [Everyone clapped.|The {E} gave a prize to both of them.] "
     "\"You could win,\" said {A}. \"Why did you stop?\" \"[A friend is better than a prize|It is no fun to win alone],\" said {B}. "
     "[{A} never forgot that day.|From then on, they always ran together.]"},
    // A wish that goes wrong.
    {meet,
     "One {time}, {A} found a {color} {magic} {spot}. [{A:he} picked it up.|It was warm and bright.] Suddenly, a voice said, \"I am a "
     "magic {magic}. "
     "I will give you one wish.\" {A} [thought for a while|did not have to think]. "
     "[\"I want {toy} after {toy}, as many as I can get!\" said {A}. Soon, the house was so full that {A} could not get in.|"
     "\"I want a {treat} for every meal!\" said {A}. At first it was great. But after {number} days, {A} felt sick.|"
     "\"I want to be as big as a house!\" said {A}. {A} grew and grew. But now {A:he} could not play with {A:his} friends.|"
     "\"I want it to be night all the time!\" said {A}. But then no one could play, and everyone was tired.] "
     "\"This is not what I wanted,\" said {A}. [{A:he} was very sorry.|{A:he} ran back to the {magic}.] ",
     "\"Please take my wish back,\" {A:he} said. The {magic} [began to shine|laughed softly], and everything was as before. "
     "[{A} learned to be careful with wishes.|{A} was happy with what {A:he} had.|{A} put the {magic} back {spot} and went home to {A:his} "
     "{P}.]"},
    // A lie and the truth.
    {meet,
     "One {weather} {day}, {A} played with a ball in the house. {P:name} said, \"Please play outside.\" But {A} did not listen. "
     "Crash! The ball hit the {thing}, and the {thing} broke. {A} was scared. When {P:name} came in, {A} said, \"The [cat|dog|wind] did "
     "it!\" "
     "{P:name} [looked at {A}|said nothing and cleaned the floor]. {A} felt bad inside. [{A:he} could not eat.|{A:he} could not sleep that "
     "night.|{A:his} tummy hurt.] "
     "[In the end|At last], {A} went to {P:name}. \"It was not true,\" said {A}. \"I broke the {thing}. I am so sorry.\" ",
     "{P:name} gave {A} a hug. \"Thank you for telling the truth,\" {P:he} said. [\"A {thing} can be made again. Trust is harder to "
     "fix.\"|\"I love you more than any {thing}.\"] "
     "[Together they fixed the {thing}.|{A} felt much better.|From that day on, {A} always told the truth and played outside.]"},
    // Patience and a seed.
    {meet_both,
     "One {weather} {time}, the {E} gave them each a small seed. \"Take good care of it,\" said the {E}. \"It will be a {flower}.\" "
     "{A} put the seed in the ground and gave it water every day. {B} [forgot about it|wanted to play and gave it no water]. "
     "[Days went by.|After {number} days, nothing was there.] \"[This is boring|Nothing will grow],\" said {B}. But {A} waited. "
     "[Then one morning, there was a little green leaf!|Then the rain came, and then the sun, and there it was, a little green leaf!] "
     "It grew and grew until it was a big {color} {flower}. {B}'s seed did not grow at all. ",
     "{B} was sad. \"I want a {flower} too,\" {B:he} said. [\"We can share mine,\" said {A}.|{A} gave {B} a new seed. \"This time, I will "
     "help you,\" said {A}.] "
     "[{B} learned that you have to care for things every day.|And this time, {B} did not forget the water.|Soon, there were {number} of "
     "them at the {place}.]"},
    // Lost in the woods.
    {meet,
     "One {weather} {time}, {A} saw a {color} butterfly. {A:he} followed it over the hill and into the forest. "
     "[It flew higher and higher, and then it was gone.|{A} did not look where {A:he} went.] {A} looked around. All the trees looked the "
     "same. {A:he} was lost! "
     "[It got dark and cold.|The wind made a strange noise.] \"Help!\" cried {A}. [An owl looked down from a tree.|A {B:is} named {B} "
     "heard {A:him}.] "
     "\"[Follow the river|Look for the brightest star|Follow the sound of the bell],\" said a kind voice. \"It will take you home.\" "
     "{A} did just that. [{A:he} walked and walked.|{A:he} was tired, but {A:he} did not stop.] At last, {A:he} saw the light of {A:his} "
     "house. ",
     "{A:his} {P} ran to {A:him}. \"Where were you? I was so worried!\" said {P:name}. \"I followed a butterfly and got lost,\" said {A}. "
     "[{P:name} hugged {A:him} and made a warm {treat}.|\"Next time, tell me where you go,\" said {P:name}.] "
     "[{A} was glad to be home.|{A} slept well in {A:his} own bed that night.|After that, {A} never went into the forest alone.]"},
    // Whose is it?
    {meet,
     "One {weather} {time}, {A} found a {color} {toy} on the way to the {place}. [\"What a nice {toy}!\" said {A}.|It was new and bright.] "
     "{A} wanted to keep it. But then {A:he} thought, \"Somebody must miss it.\" "
     "So {A} asked the {E}. \"Is this your {toy}?\" \"No,\" said the {E}. \"Mine is {other color}.\" "
     "Then {A} saw {B}, who looked [sad|worried]. \"Did you lose something?\" asked {A}. \"Yes,\" said {B}. \"I lost my {toy}. It is "
     "{color}.\" "
     "{A} gave it to {B}. ",
     "{B} was so happy! \"Thank you for being honest,\" said {B}. [{B} gave {A} a {fruit}.|\"Do you want to play with me?\"] "
     "[{A} had no {toy}, but now {A:he} had a friend, and that was better.|They played with the {toy} all day.|"
     "{A:his} {P} was proud when {A:he} told {P:him} about it.]"},
    // A day of weather.
    {meet_both,
     "[On {day}|One day], they wanted to go to the {place}. But when they looked out of the window, it rained and rained. "
     "\"Now we can't go,\" said {A}. [\"This is the worst day ever.\"|{A} was very sad.] \"Wait,\" said {B}. \"I have an idea.\" "
     "{B} took a big {color} blanket and {number} chairs and made a [house|ship|cave]. \"Come in!\" said {B}. "
     "Inside, they [told stories|ate a {treat}|played with a {toy}] and [laughed a lot|sang songs|forgot about the rain]. ",
     "When they looked out again, the rain was over. There was a rainbow in the sky! \"Look!\" said {A}. "
     "[\"This was the best day ever.\"|\"I am glad that it rained.\"] [They ran outside and jumped in the water.|They looked at it until "
     "it was gone.]"},
    // The new one in the village.
    {meet,
     "One {day}, a new {B:is} came to the village. {B:his} name was {B}. {B} was very [quiet|shy] and did not play with the others. "
     "\"{B:he} is strange,\" said some. But {A} was not so sure. [{A} remembered when {A:he} was new.|{A} wanted to know more.] "
     "{A} took a {fruit} and went to {B}. \"Hello, I am {A}. Do you like {fruit}?\" {B} smiled a little. \"Yes,\" {B:he} said. "
     "\"What do you like to do?\" asked {A}. \"I like to {other hobby},\" said {B}. \"[Me too|So do I|I would like to learn that]!\" said "
     "{A}. ",
     "Soon, {A} and {B} played every day at the {place}. [When the others saw how much fun they had, they came too.|{B} was not shy "
     "anymore.] "
     "[{A} learned that a friend can be anyone.|All it took was one hello.|And {B} was never alone again.]"},
    // A small one saves a big one.
    {meet,
     "One {weather} {time}, {A} met a [big|huge] bear at the {place}. \"You are so small,\" said the bear. \"You can't help anyone.\" "
     "{A} [was sad|was angry], but {A:he} said nothing. The next day, {A} heard a loud cry. The bear was [stuck in a net|stuck in a "
     "hole|caught in a trap]! "
     "\"Help me!\" cried the bear. [No one came, because everyone was afraid.|All the others ran away.] "
     "{A} [thought hard|had an idea]. {A:he} [found a long rope and pulled|bit and pulled until it broke|called {number} friends, and they "
     "all pulled together]. "
     "At last, the bear was free. ",
     "\"I was wrong,\" said the bear. \"You are small, but you are [brave|strong|clever].\" "
     "[From that day on, the bear and {A} were friends.|{A} smiled. \"Even a small friend can be a big help.\"|The bear carried {A} home, "
     "and everyone was surprised.]"},
};

}  // namespace

std::span<const StoryList> story_lists() { return lists; }
std::span<const StoryPlot> story_plots() { return plots; }

}  // namespace lockstep::corpus
