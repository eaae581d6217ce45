"""Domains of places, and of festivals held there."""

from data_modules.embedded.facts import Domain

TOWN = Domain.parse(
    "town",
    "{}",
    "a small town",
    """
setting: setting: Where does it lie?: where it lies
    lies {} | is found {} > is {} | sits {}
industry: industry: What do people there live by?: what people there live by
    lives by {} | depends on {} > makes its money with {} | gets most of its income from {}
former_industry: industry: What was its trade in the old days?: what its trade was in the old days
    once lived by {} | used to depend on {} > grew up around {} in the past | relied on {} in earlier days
founder: trade: Who founded it?: who founded it
    was founded by {} | was settled first by {} > was started by {} | owes its existence to {}
year: year: When was it founded?: when it was founded
    was founded in {} | received its charter in {} > dates from {} | has existed since {}
railway: year: When did the railway come?: when the railway came
    got a railway in {} | got a railway station in {} > has been on the train line since {} | got its first train in {}
population: count 800 9000: How many people live there?: how many people live there
    has {} inhabitants | counts {} inhabitants > is home to {} people | has a population of {}
mayor: person: Who is its mayor?: who its mayor is
    has {} as its mayor | is led by {} > is run by {} | is governed by {}
growth: polar.growth: Is it growing?: whether it is growing
crowd: polar.crowd: Do many tourists go there?: whether many tourists go there
""",
)
RIVER = Domain.parse(
    "river",
    "the {} River",
    "a river in the north",
    """
mouth: place: Where does it end?: where it ends
    ends near {} | meets the sea at {} > reaches its mouth at {} | flows out at {}
source: place: Where does it begin?: where it begins
    rises near {} | has its spring at {} > starts at {} | begins its course near {}
course: setting: What land does it cross?: what land it crosses
    flows {} | runs {} > makes its way {} | can be found {}
length: count 40 1900: How long is it?: how long it is
    is {} kilometres long | has a length of {} kilometres > runs for {} kilometres | stretches over {} kilometres
dam: year: When was it dammed?: when it was dammed
    was dammed in {} | got its dam in {} > has been held back by a dam since {} | was blocked by a wall in {}
flood: year: When did it flood?: when it flooded
    flooded the valley in {} | burst its banks in {} > put the valley under water in {} | last overflowed in {}
explorer: person: Who explored it?: who explored it
    was explored by {} | was mapped by {} > was charted by {} | was put on the map by {}
depth: polar.depth: Is it deep?: how deep it is
clean: polar.clean: Is its water clean?: how clean its water is
crowd: polar.crowd: Do many tourists go there?: whether many tourists go there
""",
)
BRIDGE = Domain.parse(
    "bridge",
    "the {} Bridge",
    "a road bridge",
    """
material: material: What is it made of?: what it is made of
    is made of {} | is built of {} today > now consists of {} | was put together from {}
old_material: material: What was the first one made of?: what the first one was made of
    replaced one made of {} | stands in place of one of {} > follows an older one of {} | had a forerunner of {}
year: year: When was it built?: when it was built
    was built in {} | was opened in {} > dates from {} | has carried traffic since {}
repair: year: When was it repaired?: when it was repaired
    was repaired in {} | was strengthened in {} > was mended in {} | was fixed up in {}
designer: person: Who designed it?: who designed it
    was designed by {} | was planned by {} > is the work of {} | was drawn up by {}
opener: person: Who opened it?: who opened it
    was opened by {} | was first crossed by {} > was inaugurated by {} | was handed over to the public by {}
length: count 30 1900: How long is it?: how long it is
    is {} metres long | has a length of {} metres > measures {} metres from end to end | spans {} metres
closure: cause: Why was it closed?: why it was closed
    was once closed because of {} | had to close after {} > had to shut because of {} | was barred owing to {}
condition: polar.condition: Is it in good shape?: what shape it is in
crowd: polar.crowd: Do many tourists go there?: whether many tourists go there
""",
)
MUSEUM = Domain.parse(
    "museum",
    "the {} Museum",
    "a public museum",
    """
collection: product: What does it show?: what it shows
    shows {} | has a collection of {} > displays {} | is a place to look at {}
setting: setting: Where is it?: where it is
    stands {} | is found {} > is {} | was built {}
founder: trade: Who founded it?: who founded it
    was founded by {} | was set up by {} > was started by {} | was the idea of {}
director: person: Who runs it?: who runs it
    is directed by {} | has {} as its director > is run by {} | is headed by {}
donor: person: Who paid for it?: who paid for it
    was paid for by {} | owes its building to {} > got its money from {} | was financed by {}
visitors: count 900 9500: How many people visit it?: how many people visit it
    has {} visitors a month | counts {} guests a month > is seen by {} people a month | welcomes {} people monthly
closure: cause: Why was it closed?: why it was closed
    was once closed because of {} | had to close after {} > had to shut because of {} | was out of use owing to {}
winter: polar.winter: Can one go there in winter?: whether one can go there in winter
price: polar.price: Does it cost much?: whether it costs much
condition: polar.condition: Is the building in good shape?: what shape the building is in
""",
)
FESTIVAL = Domain.parse(
    "festival",
    "the {} Festival",
    "a yearly event",
    """
reason: celebrates: What does it celebrate?: what it celebrates
    celebrates {} | honours {} > is all about {} | marks {}
season: season: When is it held?: when it is held
    is held {} | takes place {} > happens {} | comes round {}
event: event: What happens there?: what happens there
    is known for {} | ends with {} > is famous for {} | features {}
founder: trade: Who began it?: who began it
    was begun by {} | goes back to {} > was the idea of {} | was thought up by {}
year: year: When was the first one?: when the first one was
    was first held in {} | has been held since {} > began in {} | dates back to {}
move: year: When did it move?: when it moved
    moved to the park in {} | has been in the park since {} > changed its place in {} | found its new home in {}
cancelled: cause: Was it ever cancelled?: why it was cancelled
    was once cancelled because of {} | had to stop after {} > was called off because of {} | could not go on owing to {}
host: place: Where is it held?: where it is held
    is held at {} | takes place near {} > brings people to {} | has {} as its home
crowd: polar.crowd: Do many people come?: whether many people come
loud: polar.loud: Is it loud?: how loud it is
""",
)
