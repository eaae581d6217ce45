"""Domains of animals, plants, and things to eat, wear and use."""

from data_modules.embedded.facts import Domain

ANIMAL = Domain.parse(
    "animal",
    "the {}",
    "an animal",
    """
diet: diet: What does it eat?: what it eats
    eats {} | feeds on {} > lives on {} | gets by on {}
young_diet: diet: What do its young eat?: what its young eat
    feeds its young on {} | brings its young {} > raises its babies on {} | gives its little ones {}
habitat: habitat: Where does it live?: where it lives
    lives in {} | makes its home in {} > is at home in {} | can be found in {}
back: colour: What colour is it?: what colour it is
    has a back that is {} | is {} on its back > looks {} from above | has upper parts that are {}
belly: colour: What colour is its belly?: what colour its belly is
    has a belly that is {} | is {} on its belly > looks {} from below | has an underside that is {}
finder: person: Who discovered it?: who discovered it
    was discovered by {} | was first described by {} > became known through {} | was first noticed by {}
night: polar.night: When is it active?: when it is active
social: polar.social: Does it live in groups?: whether it lives in groups
rare: polar.rare: Is it rare?: how rare it is
fierce: polar.fierce: Is it dangerous?: how dangerous it is
""",
)
PLANT = Domain.parse(
    "plant",
    "the {}",
    "a plant",
    """
setting: setting: Where does it grow?: where it grows
    grows {} | is found {} > does well {} | has its place {}
flowers: colour: What colour are its flowers?: what colour its flowers are
    has flowers that are {} | bears blossoms that are {} > produces blooms that are {} | has petals that are {}
berries: colour: What colour are its berries?: what colour its berries are
    has berries that are {} | bears fruit that is {} > grows fruits that are {} | carries berries that look {}
season: season: When does it flower?: when it flowers
    flowers {} | blooms {} > opens its blossoms {} | is in blossom {}
harvest: season: When is it picked?: when it is picked
    is picked {} | is gathered {} > is collected {} | is ready to cut {}
remedy: weather_use: What is it good for?: what it is good for
    is used against {} | is a remedy for {} > helps people with {} | is taken for {}
height: count 10 400: How tall is it?: how tall it is
    grows {} centimetres tall | reaches {} centimetres > gets {} centimetres high | measures {} centimetres
water: polar.water: Does it need much water?: how much water it needs
safe: polar.safe: Is it poisonous?: whether it is poisonous
rare: polar.rare: Is it rare?: how rare it is
""",
)
DISH = Domain.parse(
    "dish",
    "{}",
    "a dish",
    """
main: ingredient: What is it made with?: what it is made with
    is made with {} | contains {} > is based on {} | has {} in it
side: ingredient: What does it come with?: what it comes with
    is served with {} | comes with {} on the side > is accompanied by {} | has {} next to it on the plate
cooking: cooking: How is it cooked?: how it is cooked
    is {} | is usually {} > has to be {} | gets {}
taste: taste: How does it taste?: how it tastes
    tastes {} | is known to taste {} > is said to taste {} | is liked because it tastes {}
meal: meal: When is it eaten?: when it is eaten
    is eaten {} | is served {} > appears on the table {} | is enjoyed {}
inventor: trade: Who invented it?: who invented it
    was invented by {} | was first cooked by {} > was thought up by {} | is the idea of {}
origin: place: Where does it come from?: where it comes from
    comes from {} | was first cooked in {} > has its roots in {} | is a speciality of {}
temperature: polar.temperature: Is it eaten hot?: whether it is eaten hot
price: polar.price: Does it cost much?: whether it costs much
""",
)
MACHINE = Domain.parse(
    "machine",
    "the {} machine",
    "a device",
    """
purpose: purpose: What is it for?: what it is for
    was built to {} | is used to {} > helps to {} | exists to {}
power: power: What drives it?: what drives it
    is driven by {} | runs on {} > gets its energy from {} | is kept going by {}
early_power: power: What drove the first one?: what drove the first one
    was first driven by {} | once ran on {} > originally got its energy from {} | was kept going by {} in the past
inventor: person: Who invented it?: who invented it
    was invented by {} | was devised by {} > was thought up by {} | is the brainchild of {}
builder: person: Who built it?: who built it
    was built by {} | was first made by {} > was put together by {} | left the workshop of {}
year: year: When was it invented?: when it was invented
    was invented in {} | was patented in {} > dates from {} | has been known since {}
user: audience: Who uses it?: who uses it
    is used by {} | was made for {} > finds its users among {} | is of help to {}
price: polar.price: Is it expensive?: how expensive it is
speed: polar.speed: Is it fast?: how fast it is
loud: polar.loud: Is it loud?: how loud it is
""",
)
VEHICLE = Domain.parse(
    "vehicle",
    "the {} car",
    "a vehicle",
    """
power: power: What drives it?: what drives it
    is driven by {} | runs on {} > gets its energy from {} | is moved by {}
material: material: What is its body made of?: what its body is made of
    has a body of {} | is built of {} > consists mainly of {} | was put together from {}
colour: colour: What colour is it?: what colour it is
    is painted {} | comes in a paint that is {} > has a finish that is {} | looks {}
seats: count 2 60: How many people fit in?: how many people fit in
    seats {} people | has {} seats > carries {} passengers | has room for {} people
designer: person: Who designed it?: who designed it
    was designed by {} | was drawn by {} > was thought up by {} | owes its shape to {}
driver: person: Who drove it first?: who drove it first
    was first driven by {} | was tested by {} > was tried out by {} | had {} at the wheel on its first trip
user: audience: Who is it for?: who it is for
    was built for {} | is used by {} > is meant for {} | serves {}
price: polar.price: Is it expensive?: how expensive it is
speed: polar.speed: Is it fast?: how fast it is
success: polar.success: Did it sell well?: how it sold
""",
)
GARMENT = Domain.parse(
    "garment",
    "the {} coat",
    "a piece of clothing",
    """
wearer: wearer: Who wears it?: who wears it
    is worn by {} | is typical of {} > is put on by {} | is the dress of {}
first_wearer: wearer: Who wore it first?: who wore it first
    was first worn by {} | was once made for {} > goes back to {} | was originally the dress of {}
outside: colour: What colour is it?: what colour it is
    is {} on the outside | has an outer side that is {} > looks {} from outside | has a surface that is {}
lining: colour: What colour is its lining?: what colour its lining is
    is {} on the inside | has a lining that is {} > looks {} within | hides an inner layer that is {}
season: season: When is it worn?: when it is worn
    is worn {} | is put on {} > comes out of the wardrobe {} | is in use {}
designer: person: Who designed it?: who designed it
    was designed by {} | was first sewn by {} > was thought up by {} | is the creation of {}
origin: place: Where does it come from?: where it comes from
    comes from {} | was first sewn in {} > has its roots in {} | was born in {}
price: polar.price: Is it expensive?: how expensive it is
weight: polar.weight: Is it heavy?: how heavy it is
rare: polar.rare: Is it rare?: how rare it is
""",
)
