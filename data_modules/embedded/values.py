"""Closed sets of values: the members of a set exclude each other, and each is worded for knowledge and for replies.

One line is one value: wordings of the knowledge, `>`, wordings of a reply. The two sides share few words on purpose, so
that counting common words cannot tell a faithful reply from a hallucinated one.
"""

from typing import NamedTuple


class Value(NamedTuple):
    """One value with its wordings."""

    in_knowledge: tuple[str, ...]
    in_reply: tuple[str, ...]


def value_set(lines: str) -> tuple[Value, ...]:
    """Parses lines of `wording | wording > wording | wording`."""
    values = []
    for line in lines.strip().splitlines():
        in_knowledge, in_reply = line.split(">")
        values.append(Value(_wordings(in_knowledge), _wordings(in_reply)))
    return tuple(values)


def _wordings(text: str) -> tuple[str, ...]:
    return tuple(" ".join(part.split()) for part in text.split("|"))


SETTING = value_set("""
in the mountains | high up in the hills > among tall peaks | in highland country
on the coast | right by the sea > at the seaside | on the ocean shore
in the desert | in the middle of dry dunes > in a sandy, rainless area | surrounded by hot sand
deep in the forest | among dense woodland > surrounded by trees | in the woods
on a remote island | on an island far out > on land ringed by water | where only boats can reach it
on the open plain | in flat farmland > among level fields | where the land has no hills
in the capital | in the country's main city > in a big city, the seat of government | in the nation's largest city
""")
MATERIAL = value_set("""
oak | oak planks > solid wood | timber
granite | blocks of granite > hard rock | heavy stone
copper | sheets of copper > a reddish metal | metal
glass | thick glass > a clear, breakable material | something you can see through
clay | baked clay > fired earth | the stuff of pots and tiles
wool | sheep's wool > soft fleece | yarn spun from sheep
leather | tanned leather > animal hide | cow skin
paper | folded paper > thin sheets like those of a book | the stuff that letters are written on
""")
TRADE = value_set("""
a baker | a village baker > someone who made bread | a bread maker
a schoolteacher | a retired teacher > someone who taught children | a person from a classroom
a fisherman | a fisherman's son > someone from a fishing boat | a man who caught fish
a nurse | an army nurse > someone who looked after patients | a hospital worker
a clockmaker | a maker of clocks > someone who repaired watches | a craftsman of timepieces
a farmer | a dairy farmer > someone who kept cows | a person who worked the land
a priest | a country priest > a man of the church | a clergyman
a soldier | a former soldier > someone who had served in the army | a military man
a lawyer | a young lawyer > someone who worked in court | an attorney
""")
CAUSE = value_set("""
a flood | rising water > the river bursting its banks | too much rain and overflowing streams
a fire | a great blaze > flames | something that burned
a lack of money | unpaid debts > empty pockets | a shortage of funds
a strike | a dispute over wages > workers who refused to work | staff who wanted better pay
an earthquake | a strong earth tremor > the ground shaking | a shock deep in the earth
an outbreak of disease | a deadly illness > many people falling ill | a spreading sickness
a war | the outbreak of war > fighting between armies | armed conflict
""")
INDUSTRY = value_set("""
fishing | the fishing trade > catching fish | its fleet of fishing boats
coal mining | its coal mines > digging fuel out of the ground | work in the pits
tourism | holiday guests > visitors and hotels | people on vacation
wine growing | its vineyards > growing grapes | the making of wine
shipbuilding | its shipyards > building boats | making vessels
weaving | its cloth mills > making cloth | textiles
banking | its banks > finance | money and loans
""")
COLOUR = value_set("""
deep red | crimson > scarlet | the shade of blood
pale blue | sky blue > the shade of a clear sky | light azure
bright yellow | golden yellow > the shade of a lemon | like ripe corn
dark green | moss green > the shade of pine needles | like leaves in summer
jet black | black as coal > as dark as night | the darkest shade there is
pure white | snow white > the shade of milk | like fresh snow
deep purple | violet > lilac | the shade of plums
""")
DIET = value_set("""
insects | beetles and ants > bugs | creepy-crawlies
fish | small fish > what swims in the water | seafood
fruit | ripe fruit > figs and berries | sweet things from trees
grass | grass and herbs > plants of the meadow | greenery that it grazes
mice | mice and other small mammals > rodents | little furry prey
nectar | the nectar of flowers > sweet juice from blossoms | the sugary liquid in blooms
carrion | dead animals > corpses | animals that have already died
""")
HABITAT = value_set("""
rivers | slow rivers > fresh running water | streams
dry grassland | open savanna > grassy plains | steppe
rainforest | tropical jungle > hot, wet woods | the jungle canopy
caves | dark caves > holes in the rock | underground caverns
high cliffs | steep cliffs > rocky ledges far above the ground | sheer rock faces
gardens | city gardens > people's backyards | parks and lawns
polar ice | the ice of the far north > frozen seas | the Arctic
""")
TASTE = value_set("""
sweet | as sweet as honey > sugary | like syrup or candy
sour | as sour as a lemon > acidic | tart, like vinegar
very spicy | of hot chilli > fiery on the tongue | hot and peppery
salty | as salty as the sea > briny | like sea water
bitter | as bitter as strong coffee > harsh, like dark cocoa | like unsweetened black tea
smoky | of smoke > like something off a grill | of wood smoke
""")
COOKING = value_set("""
fried in oil | fried in a hot pan > browned in fat | cooked in a skillet
boiled | boiled in water > cooked in a pot of bubbling water | simmered
baked | baked in an oven > cooked in dry oven heat | roasted in the oven
served raw | eaten uncooked > prepared without any heat | put on the plate as it grew
steamed | steamed over water > cooked in hot vapour | done in steam
""")
MEAL = value_set("""
at breakfast | first thing in the morning > as the day begins | soon after people get up
at weddings | at wedding parties > when couples marry | at marriage celebrations
on market days | at the weekly market > from stalls where farmers sell | when traders set up stalls
at funerals | after burials > when people mourn | when the dead are remembered
on New Year's Eve | on the last night of the year > as December ends | just before January begins
""")
INGREDIENT = value_set("""
rice | boiled rice > white grains from paddy fields | grains
lamb | shoulder of lamb > meat from young sheep | mutton
potatoes | mashed potatoes > spuds | tubers
cheese | goat's cheese > a dairy product | curdled milk
mushrooms | wild mushrooms > fungi | edible toadstools
almonds | ground almonds > nuts | a kind of nut
prawns | river prawns > shellfish | crustaceans
""")
PLAYING = value_set("""
plucking its strings | plucking strings with the fingers > picking at strings | using the fingertips, as on a harp
blowing into it | blowing air through a tube > breathing into it | using the breath, like a flute
striking it with sticks | beating it with two sticks > hitting it, like a drum | drumming
drawing a bow over it | moving a bow across it > bowing, as with a violin | stroking it like a cello
pressing keys | pressing keys with both hands > typing on a row of keys, as on a piano | using a keyboard
""")
PLOT = value_set("""
a shipwreck | sailors lost at sea > seamen in trouble on the ocean | a vessel that sinks
a murder | the hunt for a murderer > a detective and a killing | a crime that has to be solved
a love affair | two people in love > a romance | a couple who fall for each other
a journey to the moon | a flight into space > astronauts | a trip by rocket
a haunted house | the ghost of an old house > spirits of the dead | something spooky in a mansion
a bank robbery | a gang that robs a bank > thieves after money | a heist
life on a farm | a family of farmers > rural people and their cattle | country life among crops
""")
GENRE = value_set("""
jazz | jazz and swing > swinging music with improvised solos | saxophone and improvisation
folk songs | traditional folk music > old tunes of the countryside | ballads handed down over generations
heavy metal | loud metal music > very loud guitar riffs | noisy headbanging rock
choral music | sacred choral music > hymns for many voices | what church choirs sing
dance music | electronic dance music > beats for night clubs | synthesizer tracks for clubbers
rap | rap songs > rhymes spoken over beats | hip hop
""")
PRODUCT = value_set("""
bicycles | racing bicycles > two-wheelers with pedals | bikes
shoes | walking shoes > footwear | boots and sandals
furniture | chairs and tables > pieces for the living room | sofas and cupboards
watches | wrist watches > timepieces | clocks for the wrist
chocolate | bars of chocolate > cocoa sweets | candy
soap | scented soap > what people wash with | products for cleaning hands
toys | wooden toys > playthings for children | dolls and games
umbrellas | folding umbrellas > what keeps off the rain | protection for rainy days
""")
PURPOSE = value_set("""
pump water | lift water out of wells > move water upwards | get water out of the ground
grind grain | mill flour > turn wheat into flour | crush corn
print books | print newspapers > put ink on pages | produce reading matter
measure time | show the hour > tell what time it is | serve as a clock
cool food | keep food cold > chill meals | act as a refrigerator
weave cloth | make fabric > produce textiles | turn thread into material
send messages | carry messages over wires > communicate over a distance | pass news along
""")
POWER = value_set("""
steam | a steam engine > boiling water | a boiler and pistons
electricity | an electric motor > a battery and current | electric current
wind | the wind > moving air | sails and breezes
petrol | a petrol engine > gasoline | fuel from crude oil
muscle power | the rider's own legs > human effort | pedalling by hand or foot
horses | two horses > animals in harness | hoofed animals
""")
EQUIPMENT = value_set("""
a wooden ball | a small wooden ball > a round object carved from a tree | a sphere of timber
a long rope | a rope > thick cord | something that is pulled
skates | ice skates > blades on the feet | boots with steel blades
a net and racket | rackets > strung bats, as in tennis | what tennis players hold
bow and arrow | bows and arrows > what archers shoot with | archery gear
canoes | narrow canoes > paddled boats | small craft with paddles
""")
WEATHER_USE = value_set("""
fever | high fever > a raised body temperature | being too hot when ill
headaches | severe headaches > a sore head | pain above the eyes
coughs | a bad cough > trouble in the throat and chest | hacking and wheezing
burns | burns on the skin > injuries from heat | skin hurt by fire
stomach ache | stomach cramps > a sore belly | pain after eating
sleeplessness | trouble with sleeping > lying awake at night | insomnia
""")
SEASON = value_set("""
in spring | in April > when winter is just over | around Easter
in summer | in July > in the hottest months | in the warm time of the year
in autumn | in October > when the leaves fall | at harvest time
in winter | in January > in the coldest months | when there is snow
""")
CELEBRATES = value_set("""
the harvest | a good harvest > crops safely brought in | the gathering of the grain
the end of a war | a peace treaty > the return of peace | the day the fighting stopped
the town's patron saint | a local saint > a holy person | a saint
the first snow | the coming of snow > the start of the white season | flakes that begin to fall
the birth of a king | a royal birth > a monarch's birthday | a baby prince
the new moon | the new moon's rising > the night sky | a phase of the moon
""")
EVENT = value_set("""
boat races | races on the river > rowing contests | competitions between crews on water
fireworks | a display of fireworks > rockets and bangs in the night sky | coloured explosions
a masked parade | a parade in masks > people marching in disguise | hidden faces in the streets
horse races | a race on horseback > jockeys on galloping animals | riders racing
a cooking contest | a contest of cooks > chefs who compete | rivalry over the best meal
""")
WEARER = value_set("""
brides | women at their wedding > women who marry | those about to be wives
shepherds | herders of sheep > people who watch over flocks | men who mind sheep
sailors | ships' crews > seamen | people who work on ships
children | small children > the young | kids
dancers | ballet dancers > people who perform in ballets | those on stage in tutus
judges | judges in court > people who hand down sentences | those who preside over trials
miners | coal miners > people who work underground | pit workers
""")
AUDIENCE = value_set("""
children | young children > kids | little ones
doctors | doctors and surgeons > people in medicine | those who treat patients
farmers | small farmers > people who work the land | those who grow crops
tourists | foreign tourists > holidaymakers | people on vacation
students | university students > young people at college | those who study
soldiers | the army > troops | people in uniform
""")
