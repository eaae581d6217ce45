"""Attributes with two opposite values, each worded with and without `not`, so that `not` tells nothing of truth."""

from data_modules.embedded.values import value_set

WINTER = value_set("""
stays open all winter | does not close in winter > is open even when it snows | can be visited in the cold months too
is closed all winter | does not open in winter > shuts when it gets cold | cannot be visited in the cold months
""")
GROWTH = value_set("""
is growing fast | has gained many new inhabitants > is getting bigger | has more people every year
is shrinking | has lost most of its inhabitants > is getting smaller | has fewer people every year
""")
NIGHT = value_set("""
hunts at night | is active after dark and not by day > comes out when the sun has set | sleeps through the day
hunts by day | is active in daylight and not at night > is up when the sun shines | sleeps through the night
""")
SOCIAL = value_set("""
lives alone | does not live in groups > keeps to itself | avoids others of its kind
lives in large herds | does not live alone > keeps company with many others | stays close to others of its kind
""")
RARE = value_set("""
is very rare | is no longer common > is hardly ever seen | is not often found these days
is very common | is not rare at all > is seen everywhere | is found all over the place
""")
PRICE = value_set("""
is expensive | is not cheap > costs a lot | is hard to afford
is cheap | is not expensive > costs next to nothing | is easy to afford
""")
SAFE = value_set("""
is poisonous | is not safe to eat > can kill whoever eats it | is toxic
is harmless | is not poisonous > can be eaten without worry | is safe for people
""")
LEARN = value_set("""
is hard to learn | is not easy to master > takes years of practice | is difficult for beginners
is easy to learn | is not hard to master > takes hardly any practice | is simple for beginners
""")
LOUD = value_set("""
is very loud | is anything but quiet > makes a lot of noise | can be heard from far away
is very quiet | is anything but loud > makes hardly any noise | can only be heard up close
""")
SUCCESS = value_set("""
sold very well | was a great success > found plenty of buyers | was anything but a flop
sold badly | was a failure > found few buyers | was anything but a hit
""")
CRITICS = value_set("""
was praised by critics | won the praise of reviewers > got glowing reviews | pleased the press
was mocked by critics | met with the scorn of reviewers > got terrible reviews | displeased the press
""")
ENDING = value_set("""
ends happily | has a happy ending > closes on a cheerful note | leaves everyone content at the finish
ends sadly | has a tragic ending > closes on a bitter note | leaves everyone in tears at the finish
""")
ACTIVE = value_set("""
still exists | has never been dissolved > is around to this day | has not broken up
no longer exists | was dissolved long ago > is not around any more | has broken up
""")
SPEED = value_set("""
is very fast | is not slow by any measure > moves at high speed | gets there in no time
is very slow | is not fast by any measure > moves at a crawl | takes ages to get there
""")
CROWD = value_set("""
draws huge crowds | is popular with visitors > attracts masses of people | is packed with guests
is hardly known | is ignored by visitors > attracts next to nobody | is almost without guests
""")
WATER = value_set("""
needs a lot of water | dies without regular rain > has to be watered often | cannot stand a drought
needs almost no water | lives for months without rain > rarely has to be watered | can stand a drought
""")
LEGAL = value_set("""
is banned in many countries | is forbidden by law > is not allowed | is against the law
is allowed everywhere | is permitted by law > is legal | is not against the law
""")
TEMPERATURE = value_set("""
is served hot | is never eaten cold > comes steaming to the table | is best while still warm
is served cold | is never eaten hot > comes chilled to the table | is best straight from the fridge
""")
CONDITION = value_set("""
is in good repair | has been restored with care > looks as good as new | is well looked after
is in ruins | has been left to decay > is falling apart | is badly neglected
""")
DEPTH = value_set("""
is very deep | is nowhere shallow > goes down a long way | is too deep to stand in
is very shallow | is nowhere deep > barely covers the knees | can be waded through
""")
CLEAN = value_set("""
is clean enough to drink | is free of pollution > has pure water | is not dirty
is badly polluted | is unsafe to drink > has filthy water | is not clean
""")
WEIGHT = value_set("""
is very light | weighs next to nothing > can be lifted with one hand | is not heavy
is very heavy | weighs a great deal > can hardly be lifted | is not light
""")
FIERCE = value_set("""
is dangerous | attacks people without warning > is a threat to humans | is not to be approached
is gentle | has never attacked people > is no threat to humans | is calm around people
""")
